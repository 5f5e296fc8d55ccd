# SPDX-License-Identifier: Apache-2.0
"""SIGINT ends every wait at once, and what was waited for can be waited for again."""

import asyncio

import numpy as np
import pytest

import hixl_rma as rma
from support.threads import Worker, seconds_until_interrupted
from support.windows import assert_usable, neighbours

pytestmark = pytest.mark.mpi

LIMIT = 0.2


def assert_prompt(call):
    """Interrupt the call; where other ranks have the processors, the best of three counts."""
    taken = [seconds_until_interrupted(call)]
    while taken[-1] > LIMIT and len(taken) < 3:
        taken.append(seconds_until_interrupted(call))
    assert min(taken) < LIMIT, f"{taken} s from the signal to the exception"


WAITS = {
    "wait_notify": lambda win: win.wait_notify(3),
    "wait_notify of any": lambda win: win.wait_notify(),
    "wait_notify with a timeout": lambda win: win.wait_notify(3, timeout=50),
    "wait_notify_some": lambda win: win.wait_notify_some(range(2, 9)),
    "wait_notify_all": lambda win: win.wait_notify_all([2, 3]),
    "wait_notify of a source": lambda win: win.wait_notify(3, source=win.size - 1),
}


@pytest.mark.parametrize("name", WAITS)
def test_sigint_ends_a_wait_for_notifications(make_one, comm, name):
    right, left = neighbours(comm)
    with make_one(8) as win:
        assert_prompt(lambda: WAITS[name](win))
        comm.Barrier()
        with win.lock(right):
            win.notify(right, notification=3, value=5)
        assert win.wait_notify(3, timeout=20) == (3, left, 1, 5)
        comm.Barrier()
        assert_usable(win, comm)


def test_sigint_ends_an_asynchronous_wait(make_one, comm):
    right, left = neighbours(comm)
    with make_one(8) as win:
        # asyncio turns the first SIGINT into a cancellation of the main task.
        assert_prompt(lambda: asyncio.run(win.wait_notify_async(3)))
        comm.Barrier()
        with win.lock(right):
            win.notify(right, notification=3)
        assert win.wait_notify(3, timeout=20).source == left
        comm.Barrier()
        assert_usable(win, comm)


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("kind", ["exclusive", "shared", "all"])
def test_sigint_ends_the_wait_for_a_lock(make_one, comm, kind):
    with make_one(8) as win:
        asks = {
            "exclusive": lambda: win.lock(0),
            "shared": lambda: win.lock(0, exclusive=False),
            "all": win.lock_all,
        }
        if comm.rank == 0:
            win.lock(0)
        comm.Barrier()
        if comm.rank == 1:
            assert_prompt(asks[kind])
        comm.Barrier()
        if comm.rank == 0:
            win.unlock(0)
        comm.Barrier()
        if comm.rank == 1:
            with asks[kind]():
                pass
        assert_usable(win, comm)


@pytest.mark.mpi(min_size=2)
def test_sigint_ends_a_fence_that_is_resumed_by_the_same_call(make_one, comm):
    with make_one(8) as win:
        if comm.rank == 0:
            assert_prompt(win.fence)
            with pytest.raises(rma.EpochError):
                win.lock(0)
        comm.Barrier()
        win.fence()
        win.fence(rma.NOSUCCEED)
        assert_usable(win, comm)


@pytest.mark.mpi(min_size=2)
def test_sigint_ends_the_wait_for_an_exposure_epoch(make_one, comm):
    right, left = neighbours(comm)
    with make_one(8) as win:
        win.post([left])
        if comm.rank == 0:
            assert_prompt(win.wait)
        comm.Barrier()
        with win.start([right]):
            win.put(np.ones(8, "u1"), right, 0)
        win.wait()
        assert (win.local == 1).all()
        comm.Barrier()
        assert_usable(win, comm)


@pytest.mark.mpi(min_size=2)
def test_sigint_ends_the_wait_for_a_post(make_one, comm):
    right, left = neighbours(comm)
    with make_one(8) as win:
        if comm.rank == 0:
            started = False

            def begin():
                nonlocal started
                if not started:
                    win.start([right])
                    started = True
                win.complete()

            assert_prompt(begin)
            comm.Barrier()
            begin()
        else:
            comm.Barrier()
        if left == 0:
            with win.post([0]):
                pass
        comm.Barrier()
        assert_usable(win, comm)


@pytest.mark.mpi(min_size=2)
def test_sigint_ends_a_free_that_is_resumed_by_the_same_call(comm):
    win = rma.Window.allocate(8, comm=comm)
    if comm.rank == 0:
        assert_prompt(win.free)
    comm.Barrier()
    win.free(timeout=20)
    with pytest.raises(rma.ClosedError):
        win.notify_count(1)


def test_a_wait_in_another_thread_goes_on_when_the_main_thread_is_interrupted(make_one, comm):
    right, left = neighbours(comm)
    with make_one(8) as win:
        waiter = Worker(lambda: win.wait_notify(4, timeout=50))
        waiter.until_asleep()
        assert_prompt(lambda: win.wait_notify(3))
        comm.Barrier()
        with win.lock(right):
            win.notify(right, notification=4)
        assert waiter.result().source == left
        comm.Barrier()
        assert_usable(win, comm)


def test_two_interrupts_end_two_waits(make_one, comm):
    with make_one(8) as win:
        for _ in range(2):
            assert_prompt(lambda: win.wait_notify(3))
        comm.Barrier()
        assert_usable(win, comm)
