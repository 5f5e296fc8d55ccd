# SPDX-License-Identifier: Apache-2.0
"""Latency of 8 bytes between two ranks of one host, ours beside the MPI library's own windows.

    mpirun -n 2 python benchmarks/latency.py [--json FILE]

Two rows of the design's table: put + flush with the target spinning in a wait, and put +
notification one way with the waiter spinning. Both sides are measured in turns within one run, a
turn being a batch of operations, and the figure is the median over the turns: machines drift by
more than what is compared. Checks, counters and the public methods are what a program gets. Ends
with status 1 when a goal is missed.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from mpi4py import MPI

import hixl_rma as rma

TURNS = 300
BATCH = 50
PING, PONG, STOP = 1, 2, 3

comm = MPI.COMM_WORLD
peer = 1 - comm.rank
one = np.ones(1)


def timed(operation: Callable[[], None]) -> float:
    """Return microseconds of one operation, over a batch."""
    start = time.perf_counter_ns()
    for _ in range(BATCH):
        operation()
    return (time.perf_counter_ns() - start) / BATCH / 1000


def measure_flush(win: rma.Window, theirs: MPI.Win) -> dict[str, list[float]]:
    """Put 8 bytes and flush; rank 1 spins in a wait of ours all the while."""
    samples: dict[str, list[float]] = {"ours": [], "mpi": []}
    theirs.Lock_all()  # before: a lock may need the other rank inside MPI
    comm.Barrier()
    if comm.rank == 0:

        def ours() -> None:
            win.put(one, 1, 0)
            win.flush(1)

        def mpi() -> None:
            theirs.Put(one, 1, 0)
            theirs.Flush(1)

        win.lock(1, exclusive=False)
        for _ in range(TURNS):
            samples["ours"].append(timed(ours))
            samples["mpi"].append(timed(mpi))
        win.notify(1, notification=STOP)
        win.unlock(1)
    else:
        while win.test_notify(STOP) is None:
            pass
    comm.Barrier()
    theirs.Unlock_all()
    return samples


def measure_notify(win: rma.Window, theirs: MPI.Win) -> dict[str, list[float]]:
    """Half of a ping-pong of 8 bytes with a notification: ours, and the idiom MPI has for it."""
    samples: dict[str, list[float]] = {"ours": [], "mpi": []}
    flag = np.frombuffer(theirs.tomemory(), "i8")[1:]
    count = np.zeros(1, "i8")
    mine, other = (PING, PONG) if comm.rank == 0 else (PONG, PING)

    def ours() -> None:
        if comm.rank == 0:
            win.put_notify(one, peer, 0, notification=mine)
            win.wait_notify(other, source=peer)
        else:
            win.wait_notify(other, source=peer)
            win.put_notify(one, peer, 0, notification=mine)

    def send() -> None:
        theirs.Put(one, peer, 0)
        theirs.Flush(peer)
        theirs.Accumulate(count, peer, 1, MPI.REPLACE)
        theirs.Flush(peer)

    def receive() -> None:
        while flag[0] < count[0]:
            theirs.Sync()

    def mpi() -> None:
        count[0] += 1
        if comm.rank == 0:
            send()
            receive()
        else:
            receive()
            send()

    win.lock_all()
    theirs.Lock_all()
    flag[0] = 0
    comm.Barrier()
    for _ in range(TURNS):
        samples["ours"].append(timed(ours) / 2)
        samples["mpi"].append(timed(mpi) / 2)
    theirs.Unlock_all()
    win.unlock_all()
    comm.Barrier()
    return samples


def summary(
    samples: dict[str, list[float]], goal_us: float, goal_ratio: float
) -> dict[str, object]:
    """Compare medians with the goals."""
    ours, mpi = (statistics.median(samples[name]) for name in ("ours", "mpi"))
    tail = sorted(samples["ours"])[len(samples["ours"]) * 99 // 100]
    ratio = statistics.median(a / b for a, b in zip(samples["ours"], samples["mpi"], strict=True))
    return {
        "ours_us": round(ours, 3),
        "ours_p99_us": round(tail, 3),
        "mpi_us": round(mpi, 3),
        "ratio": round(ratio, 3),
        "goal_us": goal_us,
        "goal_ratio": goal_ratio,
        "met": ours <= goal_us and ratio <= goal_ratio,
    }


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if comm.size != 2:
        print("run it on two ranks: mpirun -n 2 python benchmarks/latency.py", file=sys.stderr)
        return 2
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[comm.rank % len(cores)]})
    theirs = MPI.Win.Allocate(4096, 8, comm=comm)
    with rma.Window.allocate(512, "f8", comm=comm) as win:
        flush, notify = measure_flush(win, theirs), measure_notify(win, theirs)
    theirs.Free()
    met = True
    if comm.rank == 0:
        rows = {
            "put + flush, 8 B": summary(flush, 0.4, 0.5),
            "put + notification one way, 8 B": summary(notify, 1.0, 1 / 3),
        }
        print(MPI.Get_library_version().split(",")[0].splitlines()[0])
        for name, row in rows.items():
            print(name, json.dumps(row))
        if options.json:
            options.json.write_text(json.dumps(rows, indent=2))
        met = all(bool(row["met"]) for row in rows.values())
    return 0 if comm.bcast(met, 0) else 1


if __name__ == "__main__":
    sys.exit(main())
