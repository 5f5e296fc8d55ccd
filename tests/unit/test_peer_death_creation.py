# SPDX-License-Identifier: Apache-2.0
"""Ranks that are killed, or stand still, while a window is being made."""

import contextlib
import signal
import time
import uuid

import pytest

import hixl_rma as rma
from hixl_rma.bootstrap import Deadline, LocalBootstrap
from support.victims import LONG, NOTICED, end_rank, make_window, start_rank
from support.windows import Kind

# Dies or stands still in the nth exchange, before it gives its piece or when it has those of all.
VICTIM = """
import os, sys, time
from hixl_rma.bootstrap import LocalBootstrap, Deadline
from support.victims import LONG, make_window
from support.windows import Kind

job, rank, size, flavour, nth, before, number = sys.argv[1:]

class Mortal(LocalBootstrap):
    left = int(nth)

    def fall(self):
        print(time.monotonic(), flush=True)
        os.kill(os.getpid(), int(number))

    def allgather(self, data, deadline=None):
        Mortal.left -= 1
        if Mortal.left == 0 and before == "before":
            self.fall()
        pieces = super().allgather(data, deadline)
        if Mortal.left == 0:
            self.fall()
        return pieces

with LocalBootstrap(job, int(rank), int(size)) as bootstrap:
    bootstrap.allgather(b"", Deadline(LONG))  # who has not joined yet is nobody's loss
    bootstrap.__class__ = Mortal
    make_window(Kind(flavour), bootstrap, 4096)
    print("made", flush=True)
"""
EXCHANGES = 3
SHORT = 1.0  # [s]


@pytest.fixture(scope="module", autouse=True)
def _engine():
    """What a process keeps from its first window on is there before leaks are looked for."""
    rma.Window.allocate(1, comm=LocalBootstrap()).free()


@pytest.fixture
def fallen(monkeypatch):
    """Make a window of 3 ranks, of which one falls; return a rank's error and the time it took."""
    monkeypatch.setenv("HIXL_RMA_TIMEOUT", str(LONG))
    with contextlib.ExitStack() as stack:

        def make(
            me, victim, nth, before, *, flavour="allocate", number=signal.SIGKILL, timeout=LONG
        ):
            monkeypatch.setenv("HIXL_RMA_TIMEOUT", str(timeout))
            job = f"creation-{uuid.uuid4()}"
            others = {}
            for rank in set(range(3)) - {me}:
                falls = nth if rank == victim else 0
                arguments = (job, str(rank), "3", flavour, str(falls), before, str(int(number)))
                others[rank] = start_rank(VICTIM, *arguments)
                stack.callback(end_rank, others[rank])
            bootstrap = stack.enter_context(LocalBootstrap(job, me, 3))
            bootstrap.allgather(b"", Deadline(LONG))
            with pytest.raises(rma.RmaError) as caught:
                make_window(Kind(flavour), bootstrap, 4096)
            ended_at = time.monotonic()
            return caught.value, ended_at - float(others[victim].stdout.readline())

        yield make


POINTS = [(nth, when) for nth in range(1, EXCHANGES + 1) for when in ("before", "after")][:-1]


# Who looks on, who falls, and what sort of window.
CASES = [(0, 1, "allocate"), (2, 1, "allocate"), (1, 0, "allocate"), (0, 1, "create")]


@pytest.mark.leaks
@pytest.mark.parametrize(("me", "victim", "flavour"), CASES)
@pytest.mark.parametrize(("nth", "before"), POINTS)
def test_a_creation_ends_on_every_rank_when_one_is_killed_in_it(
    fallen, me, victim, flavour, nth, before
):
    error, seconds = fallen(me, victim, nth, before, flavour=flavour)
    assert isinstance(error, rma.PeerLostError)
    assert error.peer_rank == victim
    assert seconds < NOTICED


@pytest.mark.leaks
@pytest.mark.parametrize(("nth", "before"), POINTS)
def test_a_creation_ends_in_time_when_a_rank_stands_still_in_it(fallen, nth, before):
    error, seconds = fallen(0, 1, nth, before, number=signal.SIGSTOP, timeout=SHORT)
    assert isinstance(error, rma.RmaTimeoutError)
    assert seconds < SHORT + NOTICED
