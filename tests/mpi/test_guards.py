# SPDX-License-Identifier: Apache-2.0
"""Openers act at the call; their guards close the epoch and never hide the error of the body."""

import numpy as np
import pytest

import hixl_rma as rma
from support.windows import assert_bytes, assert_usable, neighbours, pattern, raw

pytestmark = pytest.mark.mpi


class BodyError(Exception):
    pass


def test_an_opener_acts_at_the_call_without_a_guard(make, comm):
    right, left = neighbours(comm)
    with make(64) as win:
        comm.Barrier()
        win.lock(right)
        win.put(pattern(comm.rank, 64), right, 0)
        win.unlock(right)
        comm.Barrier()
        assert_bytes(raw(win), pattern(left, 64))
        win.lock_all()
        win.get(np.zeros(64, "u1"), right, 0)
        win.unlock_all()


def test_a_guard_that_is_dropped_closes_nothing(make, comm):
    right, _ = neighbours(comm)
    with make(64) as win:
        comm.Barrier()
        guard = win.lock(right, exclusive=False)
        del guard
        win.put(pattern(1, 8), right, 0)
        win.unlock(right)
        comm.Barrier()


def test_the_guard_of_a_lock_unlocks(make, comm):
    right, _ = neighbours(comm)
    with make(64) as win:
        for opener in (lambda: win.lock(right), win.lock_all):
            with opener():
                win.put(pattern(1, 8), right, 0)
            with pytest.raises(rma.EpochError):
                win.put(pattern(1, 8), right, 0)
            comm.Barrier()


def test_the_guard_of_a_fence_fences_again(make, comm):
    right, left = neighbours(comm)
    with make(64) as win:
        for number in range(3):
            with win.fence():
                win.put(pattern(comm.rank + number, 64), right, 0)
            # No barrier: the fence at the end of the body is one.
            assert_bytes(raw(win), pattern(left + number, 64))
            comm.Barrier()
        assert_usable(win, comm)


def test_the_guards_of_start_and_post_complete_and_wait(make, comm):
    right, left = neighbours(comm)
    with make(64) as win:
        comm.Barrier()
        with win.post([left]), win.start([right]):
            win.put(pattern(comm.rank, 64), right, 0)
        assert_bytes(raw(win), pattern(left, 64))
        assert_usable(win, comm)


@pytest.mark.parametrize("name", ["lock", "lock_all", "fence", "start"])
def test_the_error_of_the_body_comes_out_of_the_guard(make, comm, name):
    right, left = neighbours(comm)
    openers = {
        "lock": lambda win: win.lock(right),
        "lock_all": lambda win: win.lock_all(),
        "fence": lambda win: win.fence(),
        "start": lambda win: win.start([right]),
    }
    with make(64) as win:
        comm.Barrier()
        if name == "start":
            win.post([left])
        with pytest.raises(BodyError), openers[name](win):
            raise BodyError
        if name == "start":
            win.wait()
        if name == "fence":
            win.fence(rma.NOSUCCEED)
        comm.Barrier()
        assert_usable(win, comm)


def close_and_fail(close):
    close()
    raise BodyError


def test_the_error_of_the_body_is_not_hidden_by_that_of_the_guard(make, comm):
    right, _ = neighbours(comm)
    with make(64) as win:
        comm.Barrier()
        # The body closes the epoch itself, so that the guard has nothing to close.
        with pytest.raises(BodyError), win.lock(right):
            close_and_fail(lambda: win.unlock(right))
        with pytest.raises(BodyError), win.lock_all():
            close_and_fail(win.unlock_all)
        comm.Barrier()
        assert_usable(win, comm)


def test_an_operation_refused_in_the_body_leaves_the_epoch_to_the_guard(make, comm):
    right, _ = neighbours(comm)
    with make(64) as win:
        comm.Barrier()
        with pytest.raises(rma.RangeError), win.lock(right):
            win.put(pattern(1, 65), right, 0)
        comm.Barrier()
        assert_usable(win, comm)


def test_nested_guards_close_in_any_order(make, comm):
    with make(64) as win:
        comm.Barrier()
        # All ranks in the same order, hence no cycle of waits.
        for target in range(comm.size):
            win.lock(target)
        for target in range(comm.size):
            win.put(pattern(1, 8), target, 0)
        for target in reversed(range(comm.size)):
            win.unlock(target)
        comm.Barrier()
        assert_usable(win, comm)
