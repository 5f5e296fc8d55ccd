# SPDX-License-Identifier: Apache-2.0
"""Where the kernel refuses cross-process copy, created windows work all the same, and say how."""

import os
import shutil
import subprocess
import sys
import uuid

import pytest

# A rank that lets nobody trace it and may trace nobody: what a hardened container does.
HARDEN = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
class Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]
class Data(ctypes.Structure):
    _fields_ = [("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32),
                ("inheritable", ctypes.c_uint32)]
header, data = Header(0x20080522, 0), (Data * 2)()
assert libc.capget(ctypes.byref(header), data) == 0
CAP_SYS_PTRACE = 19
data[0].effective &= ~(1 << CAP_SYS_PTRACE)
data[0].permitted &= ~(1 << CAP_SYS_PTRACE)
assert libc.capset(ctypes.byref(header), data) == 0
PR_SET_DUMPABLE = 4
assert libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0
"""

RANK = """
import numpy as np, hixl_rma as rma
memory = np.zeros(1 << 16, "i8")
with rma.Window.create(memory) as win:
    peer = 1 - win.rank
    with win.fence():
        win.put(np.arange(1000) + win.rank, peer, 64)
    with win.lock_all():
        win.accumulate(np.array([5]), 0, 0)
        win.accumulate(np.array([7]), 1, 0)
        win.flush_all()
        win.put_notify(np.full(9000, 3), peer, 2000, notification=1)
        win.wait_notify(1, timeout=20)
    assert (memory[2000:11000] == 3).all()
    win.fence()
    assert memory[0] == (10, 14)[win.rank], memory[0]
    assert (memory[64:1064] == np.arange(1000) + peer).all()
    print(win.transports[peer])
"""


def run_ranks(program, prefixes, **variables):
    """Run two ranks of a job of its own; return what each wrote."""
    job = f"test-{uuid.uuid4()}"
    processes = [
        subprocess.Popen(
            [*prefix, sys.executable, "-c", program],
            env={
                **os.environ,
                "HIXL_RMA_LOCAL_JOB": f"{job}:{rank}:2",
                "HIXL_RMA_TIMEOUT": "30",
                "HIXL_RMA_LOG": "info",
                **variables,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, prefix in enumerate(prefixes)
    ]
    try:
        return [process.communicate(timeout=60) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def assert_staged(outcomes, reason):
    for rank, (output, errors) in enumerate(outcomes):
        assert output.split() == ["staged"], errors
        line = next(line for line in errors.splitlines() if f"reaches rank {1 - rank}" in line)
        assert f"rank {rank} reaches rank {1 - rank} through staged; cma refused: " in line
        assert reason in line


def test_ranks_that_may_not_trace_each_other_fall_back_to_staged():
    assert_staged(run_ranks(HARDEN + RANK, [[], []]), "cross-process copy was refused")


def test_one_rank_that_refuses_is_enough_and_both_say_so():
    # One side reaches the other all the same; both would have to.
    harden = "".join(f"    {line}\n" for line in HARDEN.splitlines() if line)
    program = f"import os\nif os.environ['HIXL_RMA_LOCAL_JOB'].endswith(':1:2'):\n{harden}{RANK}"
    outcomes = run_ranks(program, [[], []])
    assert_staged(outcomes, "cma refused: ")
    told = "".join(errors for _, errors in outcomes)
    assert "cross-process copy was refused" in told
    assert "the peer cannot use it" in told


def test_ranks_in_pid_namespaces_of_their_own_fall_back_to_staged():
    unshare = shutil.which("unshare")
    command = [unshare, "--pid", "--fork", "--kill-child"] if unshare else []
    allowed = unshare and subprocess.run([*command, "true"], capture_output=True, check=False)
    if not allowed or allowed.returncode != 0:
        pytest.skip("this user may not make a PID namespace")
    assert_staged(run_ranks(RANK, [command, command]), "another PID namespace")


def test_without_staged_the_error_names_every_reason_on_all_ranks():
    program = HARDEN + (
        "import numpy as np, hixl_rma as rma\n"
        "try:\n"
        "    rma.Window.create(np.zeros(8))\n"
        "except rma.TransportError as error:\n"
        "    print(error.reasons or error)\n"
    )
    for output, errors in run_ranks(program, [[], []], HIXL_RMA_TRANSPORTS="shm,cma"):
        assert "refused" in output, errors
        assert "staged" in output
        assert "not among the transports that are allowed" in output
