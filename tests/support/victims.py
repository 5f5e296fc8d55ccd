# SPDX-License-Identifier: Apache-2.0
"""Ranks over the local bootstrap that tests kill, stop and let go on."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hixl_rma as rma
from hixl_rma.bootstrap import Deadline, LocalBootstrap
from support.threads import Worker
from support.windows import ALLOCATE, Kind, environment

LONG = 20  # [s] a time-out that no passing test comes near
NOTICED = 1.0  # [s] what is promised
TESTS = Path(__file__).resolve().parents[1]

VICTIM = """
import os, signal, sys, threading, time
import numpy as np
import hixl_rma as rma
from hixl_rma.bootstrap import Deadline, LocalBootstrap
from support.victims import LONG, make_window
from support.windows import Kind

rank, size = int(sys.argv[2]), int(sys.argv[3])
kind = Kind(*sys.argv[4].split(":")) if sys.argv[4] else Kind("allocate")
with LocalBootstrap(sys.argv[1], rank, size) as bootstrap:
    bootstrap.allgather(b"", Deadline(LONG))
    win = make_window(kind, bootstrap, int(sys.argv[6]))
    exec(sys.argv[5])
    print("ready", flush=True)
    for line in sys.stdin:
        exec(line)
        print("ready", flush=True)
    while True:
        signal.pause()
"""


def make_window(kind: Kind, bootstrap: LocalBootstrap, nbytes: int) -> rma.Window:
    """Make a window of bytes and 8 notifications."""
    with environment(HIXL_RMA_TRANSPORTS=kind.transports):
        if kind.flavour == "create":
            return rma.Window.create(np.zeros(nbytes, "u1"), comm=bootstrap, notifications=8)
        return rma.Window.allocate(nbytes, comm=bootstrap, notifications=8)


def start_rank(program: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a Python program that finds the package and the tests' support."""
    environ = dict(os.environ)
    environ["PYTHONPATH"] = os.pathsep.join([str(TESTS), environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def end_rank(process: subprocess.Popen[str]) -> None:
    """Kill it, whatever state it is in, and give its pipes back."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        with contextlib.suppress(BrokenPipeError):
            pipe.close()


def processor_time(pid: int) -> float:
    """Return the seconds that all threads of a process have been on a processor."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) * 1e-9


class _Left(Exception):
    """Leaves a window alone, as an error in the body of its `with` does."""


class Group:
    """This process as rank 0, the others as processes that can be killed.

    Parameters
    ----------
    stack : contextlib.ExitStack
        What ends with the test.
    size : int
        How many ranks.
    victim_does : str
        Statements that each other rank runs before it says that it is ready.
    kind : Kind
        Which window, over which transport.
    nbytes : int
        Bytes of it on each rank.
    """

    def __init__(
        self,
        stack: contextlib.ExitStack,
        size: int = 2,
        victim_does: str = "",
        kind: Kind = ALLOCATE,
        nbytes: int = 4096,
    ) -> None:
        job = f"death-{uuid.uuid4()}"
        transport = f"{kind.flavour}:{kind.transports}" if kind.transports else ""
        self.victims = {}
        for rank in range(1, size):
            arguments = (job, str(rank), str(size), transport, victim_does, str(nbytes))
            process = start_rank(VICTIM, *arguments)
            stack.callback(end_rank, process)
            self.victims[rank] = process
        self.bootstrap = stack.enter_context(LocalBootstrap(job, 0, size))
        self.bootstrap.allgather(b"", Deadline(LONG))  # whatever the default time-out is
        self.win = make_window(kind, self.bootstrap, nbytes)
        stack.callback(self._leave)

    def _leave(self) -> None:
        for process in self.victims.values():
            process.kill()  # a stopped one, too: free waits for nobody then
        try:
            self.win.free(timeout=LONG)
        except rma.EpochError:  # the test ended inside an epoch
            with contextlib.suppress(_Left), self.win:
                raise _Left from None

    def until_ready(self) -> None:
        """Return when every other rank has done what it was told."""
        for process in self.victims.values():
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"

    def tell(self, statement: str, rank: int = 1) -> None:
        """Have a rank run one more statement, after which it says again that it is ready."""
        pipe = self.victims[rank].stdin
        assert pipe is not None
        pipe.write(statement + "\n")
        pipe.flush()

    def kill(self, rank: int = 1) -> float:
        """Kill a rank and return when."""
        self.victims[rank].kill()
        return time.monotonic()

    def stop(self, rank: int = 1) -> None:
        """Stop a rank, and return when it stands still."""
        process = self.victims[rank]
        process.send_signal(signal.SIGSTOP)
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)

    def go_on(self, rank: int = 1, work: float = 0.0) -> None:
        """Let a stopped rank go on, and return when it has worked for so many seconds."""
        pid = self.victims[rank].pid
        done = processor_time(pid) + work
        self.victims[rank].send_signal(signal.SIGCONT)
        deadline = time.monotonic() + LONG
        while work and processor_time(pid) < done:
            assert time.monotonic() < deadline

    def until_lost(self, rank: int = 1) -> None:
        """Return when the death of a killed rank is known, within the time promised."""
        self.victims[rank].wait()
        deadline = time.monotonic() + NOTICED
        while rank not in self.win.failed_ranks:
            assert time.monotonic() < deadline

    def dies_while(self, wait: Callable[[], Any], rank: int = 1) -> rma.PeerLostError:
        """Return what the wait raises when the rank is killed in the middle of it."""
        waiter = Worker(wait)
        waiter.until_asleep()
        killed_at = self.kill(rank)
        with pytest.raises(rma.PeerLostError) as caught:
            waiter.result(LONG)
        assert time.monotonic() - killed_at < NOTICED
        assert rank in self.win.failed_ranks
        return caught.value
