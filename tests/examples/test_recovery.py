# SPDX-License-Identifier: Apache-2.0
"""A rank killed under mpirun that lets the others live: they notice it and go on.

They leave by os._exit, as MPI_Finalize may wait for the dead.
"""

import sys

import pytest

from support.launcher import run_program

RANKS = 3
PROGRAM = """
import os, signal, sys, time
import numpy as np
from mpi4py import MPI
import hixl_rma as rma
from hixl_rma import creation

comm, call = MPI.COMM_WORLD, sys.argv[1]
clock = rma.Window.allocate(1, "f8", comm=comm)

def die():
    for rank in range(comm.size):
        with clock.lock(rank):
            clock.put(np.array([time.monotonic()]), rank, 0)
    os.kill(os.getpid(), signal.SIGKILL)

if call == "create" and comm.rank == 1:
    creation._spin_seconds = lambda *_: die()  # when two exchanges are over
if call != "create":
    win = rma.Window.allocate(4096, comm=comm, notifications=8)
    if comm.rank == 1:
        win.lock(0) if call == "lock" else None
    comm.Barrier()
    if comm.rank == 1:
        die()

calls = {
    "create": lambda: rma.Window.allocate(4096, comm=comm),
    "wait_notify": lambda: win.wait_notify(0, source=1),
    "any_source": lambda: win.wait_notify(0),
    "fence": lambda: win.fence(),
    "lock": lambda: win.lock(0),
    "start": lambda: win.start([1]),
    "free": lambda: win.free(),
}
try:
    calls[call]()
    outcome = "returned"
except rma.PeerLostError as error:
    outcome = f"lost {error.peer_rank}"
late = time.monotonic() - clock.local[0]
failed = 1 in clock.failed_ranks
other = 2 - comm.rank
with clock.lock(other):
    clock.notify(other, notification=0)
clock.wait_notify(0, source=other)
print(f"rank {comm.rank}: {outcome}, known: {failed}, in time: {late < 1}", flush=True)
os._exit(0)
"""


@pytest.mark.parametrize(
    "call", ["create", "wait_notify", "any_source", "fence", "lock", "start", "free"]
)
def test_the_others_notice_a_killed_rank_within_a_second_and_live_on(call, tmp_path):
    ended = run_program(
        RANKS,
        [sys.executable, "-c", PROGRAM, call],
        cwd=tmp_path,
        timeout=50,
        environment={"HIXL_RMA_TIMEOUT": "20"},
        recover=True,
    )
    outcome = "returned" if call == "free" else "lost 1"
    for rank in (0, 2):
        expected = f"rank {rank}: {outcome}, known: True, in time: True"
        assert expected in ended.stdout, ended.stdout
    assert "rank 1:" not in ended.stdout
    assert ended.returncode == 0, ended.stdout
