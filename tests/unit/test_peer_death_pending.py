# SPDX-License-Identifier: Apache-2.0
"""Operations that are outstanding when their target is killed, over a transport that has such."""

import asyncio
import contextlib
import functools
import time

import numpy as np
import pytest

import hixl_rma as rma
from support.threads import Worker
from support.victims import LONG, NOTICED, Group
from support.windows import Kind

DATA = np.arange(64, dtype="u1")


@pytest.fixture
def group(monkeypatch):
    """A rank that stands still: what it is asked for stays outstanding until it is killed."""
    monkeypatch.setenv("HIXL_RMA_TIMEOUT", str(LONG))
    with contextlib.ExitStack() as stack:
        make = functools.partial(Group, stack, kind=Kind("create", "staged"))

        def stopped(**options):
            g = make(**options)
            g.until_ready()
            g.win.lock_all()
            g.stop()
            return g

        yield stopped


def test_a_flush_raises_when_the_target_is_killed_and_says_that_its_process_ended(group):
    g = group()
    g.win.put(DATA, 1, 0)
    error = g.dies_while(lambda: g.win.flush(1))
    assert error.peer_rank == 1
    assert "the process of rank 1 has ended" in str(error)


@pytest.mark.parametrize("call", ["flush_all", "put_notify", "unlock_all"])
def test_what_completes_operations_raises_when_the_target_is_killed(group, call):
    g = group()
    g.win.put(DATA, 1, 0)
    if call == "put_notify":
        g.dies_while(lambda: g.win.put_notify(DATA, 1, 0, notification=0))
    else:
        g.dies_while(getattr(g.win, call))


def test_an_unlock_that_timed_out_raises_the_death_when_it_is_made_again_and_free_ends(group):
    g = group()
    g.win.put(DATA, 1, 0)
    with pytest.raises(rma.RmaTimeoutError):
        g.win.unlock_all(timeout=0.1)
    g.kill()
    g.until_lost()
    with pytest.raises(rma.PeerLostError):
        g.win.unlock_all()
    g.win.free(timeout=LONG)


def test_a_request_raises_when_its_target_is_killed_each_time_it_is_waited_for(group):
    g = group()
    request = g.win.rput(DATA, 1, 0)
    error = g.dies_while(lambda: request.wait(LONG))
    assert error.peer_rank == 1
    assert request.status == "failed"
    for _ in range(2):
        with pytest.raises(rma.PeerLostError, match="the process of rank 1 has ended"):
            request.wait(0)


def test_a_request_that_is_awaited_raises_when_its_target_is_killed(group):
    g = group()
    request = g.win.rget(np.zeros(64, "u1"), 1, 0)

    async def wait():
        await request

    waiter = Worker(lambda: asyncio.run(wait()))
    assert not request.done
    killed_at = g.kill()
    with pytest.raises(rma.PeerLostError):
        waiter.result(LONG)
    assert time.monotonic() - killed_at < NOTICED


def test_operations_on_the_living_complete_beside_those_that_are_lost(group):
    g = group(size=3)
    back = np.zeros(64, "u1")
    lost = g.win.rput(DATA, 1, 0)
    g.win.put(DATA, 2, 0)
    g.win.flush(2)
    g.win.get(back, 2, 0)
    g.dies_while(lambda: lost.wait(LONG))
    g.win.flush(2)
    assert np.array_equal(back, DATA)
    g.win.flush_all()  # it has nothing of the lost rank to report
    g.win.unlock_all()
