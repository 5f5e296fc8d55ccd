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
from hixl_rma.bootstrap import LocalBootstrap
from support.threads import Worker
from support.windows import ALLOCATE, Kind, environment

LONG = 50  # [s] a time-out that no passing test comes near
NOTICED = 1.0  # [s] what is promised
TESTS = Path(__file__).resolve().parents[1]

VICTIM = """
import os, signal, sys, threading, time
import numpy as np
import hixl_rma as rma
from hixl_rma.bootstrap import LocalBootstrap
from support.victims import make_window
from support.windows import Kind

rank, size = int(sys.argv[2]), int(sys.argv[3])
kind = Kind(*sys.argv[4].split(":")) if sys.argv[4] else Kind("allocate")
with LocalBootstrap(sys.argv[1], rank, size) as bootstrap:
    win = make_window(kind, bootstrap)
    exec(sys.argv[5])
    print("ready", flush=True)
    while True:
        signal.pause()
"""


def make_window(kind: Kind, bootstrap: LocalBootstrap) -> rma.Window:
    """Make a window of 4096 bytes and 8 notifications."""
    with environment(HIXL_RMA_TRANSPORTS=kind.transports):
        if kind.flavour == "create":
            return rma.Window.create(np.zeros(4096, "u1"), comm=bootstrap, notifications=8)
        return rma.Window.allocate(4096, comm=bootstrap, notifications=8)


def start_rank(program: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a Python program that finds the package and the tests' support."""
    environ = dict(os.environ)
    environ["PYTHONPATH"] = os.pathsep.join([str(TESTS), environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments], env=environ, stdout=subprocess.PIPE, text=True
    )


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
    """

    def __init__(
        self,
        stack: contextlib.ExitStack,
        size: int = 2,
        victim_does: str = "",
        kind: Kind = ALLOCATE,
    ) -> None:
        job = f"death-{uuid.uuid4()}"
        transport = f"{kind.flavour}:{kind.transports}" if kind.transports else ""
        self.victims = {}
        for rank in range(1, size):
            process = start_rank(VICTIM, job, str(rank), str(size), transport, victim_does)
            assert process.stdout is not None
            stack.callback(process.stdout.close)
            stack.callback(process.wait)
            stack.callback(process.kill)
            self.victims[rank] = process
        self.bootstrap = stack.enter_context(LocalBootstrap(job, 0, size))
        self.win = make_window(kind, self.bootstrap)
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

    def go_on(self, rank: int = 1) -> None:
        """Let a stopped rank go on."""
        self.victims[rank].send_signal(signal.SIGCONT)

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
