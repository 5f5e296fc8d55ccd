# SPDX-License-Identifier: Apache-2.0
"""Every operation needs its epoch; what does not fit is refused before a byte moves."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import hixl_rma as rma
from support.windows import assert_bytes, assert_usable, neighbours, pattern, raw

pytestmark = pytest.mark.mpi

SIZE = 256
HERE = 96  # a canary lies before and after

ORIGIN = np.full(8, 0xEE, "u1")


def operations(win, target, disp=HERE):
    """Every call that moves data or a notification, by name."""
    origin, result = ORIGIN.copy(), np.full(8, 0xDD, "u1")
    one, old = np.array([1], "i8"), np.array([2], "i8")
    return {
        "put": lambda: win.put(origin, target, disp),
        "get": lambda: win.get(result, target, disp),
        "put_v": lambda: win.put_v([(origin, disp)], target),
        "get_v": lambda: win.get_v([(result, disp)], target),
        "accumulate": lambda: win.accumulate(one, target, disp),
        "get_accumulate": lambda: win.get_accumulate(one, old, target, disp),
        "fetch_and_op": lambda: win.fetch_and_op(one, old, target, disp),
        "compare_and_swap": lambda: win.compare_and_swap(one, one, old, target, disp),
        "rput": lambda: win.rput(origin, target, disp),
        "rget": lambda: win.rget(result, target, disp),
        "raccumulate": lambda: win.raccumulate(one, target, disp),
        "rget_accumulate": lambda: win.rget_accumulate(one, old, target, disp),
        "put_notify": lambda: win.put_notify(origin, target, disp, notification=1),
        "rput_notify": lambda: win.rput_notify(origin, target, disp, notification=1),
        "put_notify_v": lambda: win.put_notify_v([(origin, disp)], target, notification=1),
        "get_notify": lambda: win.get_notify(result, target, disp, notification=1),
        "notify": lambda: win.notify(target, notification=1),
    }


VERBS = list(operations(None, 0))


@contextlib.contextmanager
def unharmed(make, comm):
    """Open a window of known bytes; at the end they are the same, and the window works."""
    with make(SIZE) as win:
        raw(win)[:] = pattern(comm.rank, SIZE)
        comm.Barrier()
        yield win
        comm.Barrier()
        assert_bytes(raw(win), pattern(comm.rank, SIZE), "memory after the error")
        assert win.notify_count(1) == 0, "a refused call has notified"
        assert_usable(win, comm)


def refuse(call):
    with pytest.raises(rma.EpochError) as caught:
        call()
    assert type(caught.value) is rma.EpochError
    return str(caught.value)


@pytest.mark.parametrize("verb", VERBS)
def test_an_operation_without_an_epoch_is_refused(make, comm, verb):
    right, _ = neighbours(comm)
    with unharmed(make, comm) as win:
        text = refuse(operations(win, right)[verb])
        assert verb.removeprefix("r") in text


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("verb", VERBS)
def test_an_operation_on_a_rank_that_is_not_locked_is_refused(make_one, comm, verb):
    right, _ = neighbours(comm)
    with unharmed(make_one, comm) as win, win.lock(comm.rank):
        text = refuse(operations(win, right)[verb])
        assert str(right) in text


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("verb", VERBS)
def test_an_operation_on_a_rank_outside_the_started_group_is_refused(make_one, comm, verb):
    right, _ = neighbours(comm)
    with unharmed(make_one, comm) as win:
        win.post([comm.rank])
        win.start([comm.rank])
        refuse(operations(win, right)[verb])
        win.complete()
        win.wait()


def test_an_exposure_epoch_is_no_access_epoch(make, comm):
    right, left = neighbours(comm)
    with unharmed(make, comm) as win:
        win.post([left])
        refuse(lambda: win.put(ORIGIN, right, HERE))
        with win.start([right]):
            pass
        win.wait()


CLOSERS = {
    "unlock": lambda win, rank: win.unlock(rank),
    "unlock_all": lambda win, rank: win.unlock_all(),
    "flush": lambda win, rank: win.flush(rank),
    "flush_local": lambda win, rank: win.flush_local(rank),
    "flush_all": lambda win, rank: win.flush_all(),
    "flush_local_all": lambda win, rank: win.flush_local_all(),
    "complete": lambda win, rank: win.complete(),
    "wait": lambda win, rank: win.wait(),
    "test": lambda win, rank: win.test(),
}


@pytest.mark.parametrize("name", CLOSERS)
def test_a_closer_without_its_opener_is_refused(make_one, comm, name):
    right, _ = neighbours(comm)
    with unharmed(make_one, comm) as win:
        refuse(lambda: CLOSERS[name](win, right))


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("name", ["unlock", "flush", "flush_local"])
def test_a_closer_for_a_rank_that_is_not_locked_is_refused(make_one, comm, name):
    right, _ = neighbours(comm)
    with unharmed(make_one, comm) as win, win.lock(comm.rank):
        refuse(lambda: CLOSERS[name](win, right))


@pytest.mark.parametrize("exclusive", [True, False])
def test_a_second_lock_on_a_rank_is_refused(make, comm, exclusive):
    right, _ = neighbours(comm)
    with unharmed(make, comm) as win, win.lock(right, exclusive=exclusive):
        refuse(lambda: win.lock(right))
        refuse(lambda: win.lock(right, exclusive=False))


def test_locks_and_lock_all_do_not_nest(make, comm):
    right, _ = neighbours(comm)
    with unharmed(make, comm) as win:
        with win.lock_all():
            refuse(lambda: win.lock(right))
            refuse(win.lock_all)
            refuse(lambda: win.unlock(right))
        comm.Barrier()
        with win.lock(right, exclusive=False):
            refuse(win.lock_all)
            refuse(win.unlock_all)


def test_fence_and_start_are_refused_while_locked(make, comm):
    right, _ = neighbours(comm)
    with unharmed(make, comm) as win:
        with win.lock(right):
            refuse(win.fence)
            refuse(lambda: win.start([right]))
        with win.lock_all():
            refuse(win.fence)
            refuse(lambda: win.start([right]))


def test_start_complete_post_and_wait_do_not_nest(make, comm):
    right, left = neighbours(comm)
    with unharmed(make, comm) as win:
        win.post([left])
        refuse(lambda: win.post([left]))
        win.start([right])
        refuse(lambda: win.start([right]))
        win.complete()
        refuse(win.complete)
        win.wait()
        refuse(win.wait)


def test_lock_fence_and_free_are_refused_between_start_and_complete(make, comm):
    right, left = neighbours(comm)
    with unharmed(make, comm) as win:
        win.post([left])
        win.start([right])
        for call in (lambda: win.lock(right), win.lock_all, win.fence, win.free):
            refuse(call)
        win.complete()
        refuse(win.free)  # still exposed
        refuse(win.fence)
        win.wait()


def test_a_window_is_not_freed_while_locked(make, comm):
    right, _ = neighbours(comm)
    with unharmed(make, comm) as win:
        with win.lock(right):
            refuse(win.free)
            win.flush(right)
        with win.lock_all():
            refuse(win.free)


def test_a_lock_is_legal_in_a_fence_epoch_that_has_no_operation_yet(make, comm):
    right, _ = neighbours(comm)
    with unharmed(make, comm) as win:
        win.fence()
        with win.lock(right):
            win.get(np.zeros(8, "u1"), right, HERE)
        refuse(lambda: win.put(ORIGIN, right, HERE))  # the fence's epoch ended with the lock
        comm.Barrier()
        win.fence()
        with win.lock_all():
            win.flush_all()
        win.fence(rma.NOSUCCEED)


def test_start_is_legal_in_a_fence_epoch_that_has_no_operation_yet(make, comm):
    right, left = neighbours(comm)
    with unharmed(make, comm) as win:
        win.fence()
        win.post([left])
        with win.start([right]):
            win.get(np.zeros(8, "u1"), right, HERE)
        win.wait()
        refuse(lambda: win.put(ORIGIN, right, HERE))


def test_lock_and_start_are_refused_in_a_fence_epoch_with_operations(make, comm):
    right, _ = neighbours(comm)
    with unharmed(make, comm) as win:
        win.fence()
        win.get(np.zeros(8, "u1"), right, HERE)
        refuse(lambda: win.lock(right))
        refuse(win.lock_all)
        refuse(lambda: win.start([right]))
        win.get(np.zeros(8, "u1"), right, HERE)  # the epoch is still open
        win.fence(rma.NOSUCCEED)


def test_a_fence_without_successor_closes_the_epoch(make, comm):
    right, _ = neighbours(comm)
    with unharmed(make, comm) as win:
        win.fence()
        win.get(np.zeros(8, "u1"), right, HERE)
        win.fence(rma.NOSUCCEED)
        refuse(lambda: win.put(ORIGIN, right, HERE))


def test_all_kinds_of_epoch_follow_one_another_on_one_window(make, comm):
    right, left = neighbours(comm)
    with make(SIZE) as win:
        raw(win)[:] = 0
        comm.Barrier()
        for number in range(1, 6):
            values = np.full(8, number, "u1")
            win.fence()
            win.put(values, right, 0)
            win.fence(rma.NOSUCCEED)
            with win.lock(right):
                win.put(values, right, 8)
            comm.Barrier()
            win.post([left])
            win.start([right])
            win.put(values, right, 16)
            win.complete()
            win.wait()
            with win.lock_all():
                win.put(values, right, 24)
            comm.Barrier()
            assert (raw(win)[:32] == number).all()
            comm.Barrier()


NO_EPOCH_NEEDED = {
    "test_notify": lambda win: win.test_notify(1),
    "notify_count": lambda win: win.notify_count(1),
    "reset_notify": lambda win: win.reset_notify(1),
    "notify_fileno": lambda win: win.notify_fileno(),
}


@pytest.mark.parametrize("name", NO_EPOCH_NEEDED)
def test_looking_at_notifications_needs_no_epoch(make_one, comm, name):
    with unharmed(make_one, comm) as win:
        NO_EPOCH_NEEDED[name](win)
        with pytest.raises(rma.NotifyTimeoutError):
            win.wait_notify(1, timeout=0)


def test_the_epoch_belongs_to_the_process_not_to_the_thread(make, comm):
    right, left = neighbours(comm)
    with make(SIZE) as win:
        comm.Barrier()
        with win.lock(right):
            run_in_thread(lambda: win.put(pattern(comm.rank, 64), right, 0))
            win.flush(right)
        run_in_thread(lambda: win.lock(comm.rank))
        win.unlock(comm.rank)
        comm.Barrier()
        assert_bytes(raw(win)[:64], pattern(left, 64))


def run_in_thread(call):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result(timeout=30)
