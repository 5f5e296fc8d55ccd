# SPDX-License-Identifier: Apache-2.0
"""Freeing is collective and final; leaving a window with an exception is an abort of one rank."""

import gc
import os
import warnings

import numpy as np
import pytest

import hixl_rma as rma
from support.threads import Worker
from support.windows import (
    CREATE,
    KINDS,
    assert_bytes,
    assert_usable,
    neighbours,
    open_window,
    pattern,
    raw,
    rounds,
)

pytestmark = pytest.mark.mpi


class LeftError(Exception):
    pass


USES = {
    "put": lambda win: win.put(np.ones(1), 0, 0),
    "get": lambda win: win.get(np.ones(1), 0, 0),
    "put_v": lambda win: win.put_v([], 0),
    "accumulate": lambda win: win.accumulate(np.ones(1), 0, 0),
    "rput": lambda win: win.rput(np.ones(1), 0, 0),
    "put_notify": lambda win: win.put_notify(np.ones(1), 0, 0, notification=1),
    "notify": lambda win: win.notify(0, notification=1),
    "wait_notify": lambda win: win.wait_notify(1, timeout=1),
    "wait_notify_some": lambda win: win.wait_notify_some([1], timeout=1),
    "wait_notify_all": lambda win: win.wait_notify_all([1], timeout=1),
    "test_notify": lambda win: win.test_notify(1),
    "notify_count": lambda win: win.notify_count(1),
    "reset_notify": lambda win: win.reset_notify(1),
    "notify_fileno": lambda win: win.notify_fileno(),
    "fence": lambda win: win.fence(),
    "start": lambda win: win.start([0]),
    "complete": lambda win: win.complete(),
    "post": lambda win: win.post([0]),
    "wait": lambda win: win.wait(),
    "test": lambda win: win.test(),
    "lock": lambda win: win.lock(0),
    "unlock": lambda win: win.unlock(0),
    "lock_all": lambda win: win.lock_all(),
    "unlock_all": lambda win: win.unlock_all(),
    "flush": lambda win: win.flush(0),
    "flush_all": lambda win: win.flush_all(),
    "sync": lambda win: win.sync(),
    "local": lambda win: win.local,
    "remote": lambda win: win.remote(0),
}


def test_every_use_after_free_is_a_closed_error(make, comm):
    with make(8, "f8") as win:
        win.free()
        for name, use in USES.items():
            with pytest.raises(rma.ClosedError) as caught:
                use(win)
            assert type(caught.value) is rma.ClosedError, name
        assert "free" in repr(win)


def test_freeing_twice_does_nothing_the_second_time(make_one, comm):
    with make_one(8) as win:
        win.free()
        win.free()
        win.free(timeout=1)
    win.free()


def test_a_window_is_made_and_freed_again_and_again(kind, comm):
    for number in range(rounds(100, comm)):
        with open_window(64, kind=kind, comm=comm) as win:
            right, left = neighbours(comm)
            with win.lock(right):
                win.put(pattern(comm.rank + number, 64), right, 0)
            # No barrier: the free waits for all ranks, then the memory is as they left it.
            view = raw(win)
            win.free()
        assert_bytes(view, pattern(left + number, 64))


def test_views_keep_the_memory_after_free(make, comm):
    with make(1 << 16) as win:
        view = win.local
        view[:] = pattern(comm.rank, 1 << 16)
    del win
    gc.collect()
    assert_bytes(view, pattern(comm.rank, 1 << 16))
    view[:] = 3
    assert (view == 3).all()


@pytest.mark.mpi(min_size=2)
def test_a_remote_view_keeps_the_memory_after_free(make_one, comm):
    right, _ = neighbours(comm)
    with make_one(4096) as win:
        raw(win)[:] = pattern(comm.rank, 4096)
        comm.Barrier()
        view = win.remote(right)
        comm.Barrier()
    del win
    gc.collect()
    assert_bytes(view, pattern(right, 4096))
    comm.Barrier()


@pytest.mark.mpi(min_size=2)
def test_a_store_through_a_remote_view_is_seen_by_its_owner(make_one, comm):
    right, left = neighbours(comm)
    with make_one((4, 5), "f4") as win:
        view = win.remote(right)
        assert (view.shape, view.dtype) == ((4, 5), np.dtype("f4"))
        view[2, 3] = comm.rank + 0.5
        comm.Barrier()
        assert win.local[2, 3] == left + 0.5
        assert np.shares_memory(win.remote(comm.rank), win.local)
        comm.Barrier()


@pytest.mark.mpi(min_size=2)
def test_memory_that_is_not_mapped_has_no_remote_view(comm):
    right, _ = neighbours(comm)
    with open_window(64, kind=CREATE, comm=comm) as win:
        with pytest.raises(rma.UnsupportedError):
            win.remote(right)
        assert_usable(win, comm)


@pytest.mark.mpi(min_size=2)
def test_free_waits_for_all_ranks_and_is_resumed_after_a_timeout(make_one, comm):
    with make_one(8) as win:
        if comm.rank == 0:
            with pytest.raises(rma.RmaTimeoutError):
                win.free(timeout=0.05)
            for call in (lambda: win.lock(0), win.fence, lambda: win.notify(0, notification=1)):
                with pytest.raises(rma.EpochError):
                    call()
            with pytest.raises(rma.RmaTimeoutError):
                win.free(timeout=0)
        else:
            assert_lockable(win, comm.rank)  # the others still use it
        comm.Barrier()


def assert_lockable(win, rank):
    with win.lock(rank, timeout=20):
        win.put(np.ones(1, "u1"), rank, 0)


def test_a_waiter_in_another_thread_ends_when_the_window_is_freed(make_one, comm):
    with make_one(8) as win:
        waiters = [
            Worker(lambda: win.wait_notify(1)),
            Worker(lambda: win.wait_notify_all([2, 3])),
        ]
        for waiter in waiters:
            waiter.until_asleep()
        win.free(timeout=20)
        for waiter in waiters:
            with pytest.raises(rma.ClosedError):
                waiter.result()


def leave(win):
    """Abort this rank's part of the window, as an error in the body of its `with` does."""
    with pytest.raises(LeftError), win:
        raise LeftError


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_error_of_one_rank_leaves_the_window_at_once_and_ends_the_fence_of_the_others(
    kind, comm
):
    with open_window(64, kind=kind, comm=comm) as win:
        if comm.rank == 0:
            leave(win)
        else:
            with pytest.raises(rma.PeerLostError) as caught:
                win.fence(timeout=20)
            assert caught.value.peer_rank == 0
            assert list(win.failed_ranks) == [0]
        comm.Barrier()
    comm.Barrier()


LOSSES = {
    "put": lambda win: win.put(np.ones(8, "u1"), 0, 0),
    "get": lambda win: win.get(np.ones(8, "u1"), 0, 0),
    "accumulate": lambda win: win.accumulate(np.ones(8, "u1"), 0, 0),
    "notify": lambda win: win.notify(0, notification=1),
}


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("name", LOSSES)
def test_operations_on_a_rank_that_left_are_a_peer_lost_error(make_one, comm, name):
    with make_one(64) as win:
        if comm.rank == 0:
            comm.Barrier()
            leave(win)
            comm.Barrier()
        else:
            win.lock_all()
            comm.Barrier()
            comm.Barrier()
            with pytest.raises(rma.PeerLostError) as caught:
                LOSSES[name](win)
            assert caught.value.peer_rank == 0
            win.put(np.ones(8, "u1"), comm.rank, 0)  # the living are reached as before
            win.unlock_all()
        comm.Barrier()


@pytest.mark.mpi(min_size=2)
def test_waiting_for_a_lock_that_a_rank_took_along_is_a_peer_lost_error(make_one, comm):
    with make_one(64) as win:
        if comm.rank == 0:
            win.lock(1)
            comm.Barrier()
            leave(win)
        else:
            comm.Barrier()
            with pytest.raises(rma.PeerLostError) as caught:
                win.lock(1, timeout=20)
            assert caught.value.peer_rank == 0
        comm.Barrier()


@pytest.mark.mpi(min_size=2)
def test_waiting_for_a_source_that_left_gives_first_what_had_arrived(make_one, comm):
    with make_one(64) as win:
        if comm.rank == 0:
            with win.lock_all():
                for rank in range(comm.size):
                    win.notify(rank, notification=4, value=9)
            leave(win)
        else:
            assert win.wait_notify(4, source=0, timeout=20) == (4, 0, 1, 9)
            with pytest.raises(rma.PeerLostError) as caught:
                win.wait_notify(4, source=0, timeout=20)
            assert caught.value.peer_rank == 0
        comm.Barrier()


@pytest.mark.mpi(min_size=3)
def test_waiting_for_any_source_tells_of_a_loss_once_and_goes_on_with_the_living(make_one, comm):
    with make_one(64) as win:
        if comm.rank == 0:
            leave(win)
            comm.Barrier()
        else:
            with pytest.raises(rma.PeerLostError) as caught:
                win.wait_notify(4, timeout=20)
            assert caught.value.peer_rank == 0
            comm.Barrier()
            partner = comm.rank % (comm.size - 1) + 1
            with win.lock(partner):
                win.notify(partner, notification=4)
            assert win.wait_notify(4, timeout=20).id == 4
        comm.Barrier()


@pytest.mark.mpi(min_size=2)
def test_a_waiter_is_woken_by_the_loss(make_one, comm):
    with make_one(64) as win:
        if comm.rank == 0:
            comm.Barrier()
            leave(win)
        else:
            waiter = Worker(lambda: win.wait_notify(4, source=0))
            waiter.until_asleep()
            comm.Barrier()
            with pytest.raises(rma.PeerLostError):
                waiter.result(timeout=5)
        comm.Barrier()


def test_a_window_that_is_dropped_warns_and_leaves(comm):
    mpi = pytest.importorskip("mpi4py.MPI")
    windows = [rma.Window.allocate(8, comm=mpi.COMM_SELF)]
    with pytest.warns(ResourceWarning):
        windows.clear()


def test_a_forked_child_may_not_use_the_window(make_one, comm):
    with make_one(64) as win:
        comm.Barrier()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # newer Pythons warn of a fork beside threads
            child = os.fork()
        if child == 0:
            status = 1
            try:
                win.lock(0)
            except rma.ForkedError:
                status = 0
            except BaseException:
                status = 2
            os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        comm.Barrier()
        assert_usable(win, comm)
