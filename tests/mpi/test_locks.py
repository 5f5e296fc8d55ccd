# SPDX-License-Identifier: Apache-2.0
"""Exclusive locks exclude, shared locks share, and nobody waits for ever."""

import os
import time

import numpy as np
import pytest

import hixl_rma as rma
from support.threads import asleep
from support.windows import assert_usable, neighbours, rounds

pytestmark = pytest.mark.mpi


def add_one(win, target, cell):
    """Read, add and write: exact only under an exclusive lock."""
    value = np.zeros(1, "i8")
    win.get(value, target, cell)
    win.flush(target)
    win.put(value + 1, target, cell)


def test_an_exclusive_lock_excludes_all_others(make, comm):
    times = rounds(300, comm)
    with make(1, "i8") as win:
        win.local[:] = 0
        comm.Barrier()
        for _ in range(times):
            with win.lock(0):
                add_one(win, 0, 0)
        comm.Barrier()
        if comm.rank == 0:
            assert win.local[0] == times * comm.size


def test_locks_on_all_ranks_exclude_on_each(make, comm):
    times = rounds(60, comm)
    with make(1, "i8") as win:
        win.local[:] = 0
        comm.Barrier()
        for number in range(times):
            for step in range(comm.size):
                target = (comm.rank + number + step) % comm.size
                with win.lock(target):
                    add_one(win, target, 0)
        comm.Barrier()
        assert win.local[0] == times * comm.size


def test_several_locks_taken_in_one_order_do_not_deadlock(make_one, comm):
    times = rounds(60, comm)
    with make_one(1, "i8") as win:
        win.local[:] = 0
        comm.Barrier()
        for _ in range(times):
            for target in range(comm.size):
                win.lock(target)
            for target in range(comm.size):
                add_one(win, target, 0)
            for target in range(comm.size):
                win.unlock(target)
        comm.Barrier()
        assert win.local[0] == times * comm.size


def test_shared_and_exclusive_locks_may_be_mixed(make, comm):
    # Readers never see the two cells differ, which writers change one after the other.
    times = rounds(200, comm)
    with make(2, "i8") as win:
        win.local[:] = 0
        comm.Barrier()
        seen = np.zeros(2, "i8")
        for number in range(times):
            if (number + comm.rank) % 4 == 0:
                with win.lock(0):
                    add_one(win, 0, 0)
                    add_one(win, 0, 1)
            elif number % 2:
                with win.lock(0, exclusive=False):
                    win.get(seen, 0, 0)
                assert seen[0] == seen[1]
            else:
                with win.lock_all():
                    win.get(seen, 0, 0)
                    win.flush(0)
                assert seen[0] == seen[1]
        comm.Barrier()


def test_locks_without_operations_are_legal(make_one, comm):
    right, _ = neighbours(comm)
    with make_one(8) as win:
        for _ in range(rounds(200, comm)):
            with win.lock(right):
                pass
            with win.lock(right, exclusive=False):
                pass
            with win.lock_all():
                pass
        comm.Barrier()
        assert_usable(win, comm)


@pytest.mark.mpi(min_size=2)
def test_shared_locks_are_held_together(make_one, comm):
    with make_one(8) as win:
        with win.lock(0, exclusive=False, timeout=20):
            comm.Barrier()  # all are inside
        comm.Barrier()
        with win.lock_all(timeout=20):
            comm.Barrier()


HOLDERS = {
    "exclusive": lambda win: win.lock(0),
    "shared": lambda win: win.lock(0, exclusive=False),
    "all": lambda win: win.lock_all(),
}


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("waiter", HOLDERS)
def test_a_lock_is_granted_only_beside_compatible_ones(make_one, comm, holder, waiter):
    asks = {
        "exclusive": lambda win: win.lock(0, timeout=0.05),
        "shared": lambda win: win.lock(0, exclusive=False, timeout=0.05),
        "all": lambda win: win.lock_all(timeout=0.05),
    }
    compatible = "exclusive" not in (holder, waiter)
    with make_one(8) as win:
        if comm.rank == 0:
            with HOLDERS[holder](win):
                comm.Barrier()
                comm.Barrier()
        else:
            comm.Barrier()
            if comm.rank == 1 and compatible:
                with asks[waiter](win):
                    pass
            elif comm.rank == 1:
                with pytest.raises(rma.RmaTimeoutError) as caught:
                    asks[waiter](win)
                assert "rank 0" in str(caught.value)
            comm.Barrier()
        assert_usable(win, comm)


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("exclusive", [True, False])
def test_a_lock_that_timed_out_is_withdrawn(make_one, comm, exclusive):
    with make_one(8) as win:
        if comm.rank == 0:
            win.lock(0)
            comm.Barrier()
            comm.Barrier()
            win.unlock(0)
            # Nothing that was withdrawn stands in the way.
            for _ in range(3):
                with win.lock(0, timeout=20):
                    pass
            comm.Barrier()
        else:
            comm.Barrier()
            with pytest.raises(rma.RmaTimeoutError):
                win.lock(0, exclusive=exclusive, timeout=0.05)
            with pytest.raises(rma.EpochError):
                win.put(np.zeros(1, "u1"), 0, 0)
            with pytest.raises(rma.EpochError):
                win.unlock(0)
            with win.lock(comm.rank, timeout=20):
                pass
            comm.Barrier()
            comm.Barrier()
            with win.lock(0, exclusive=exclusive, timeout=20):
                pass
        comm.Barrier()
        assert_usable(win, comm)


@pytest.mark.mpi(min_size=2)
def test_a_withdrawn_lock_all_holds_no_rank(make_one, comm):
    last = comm.size - 1
    with make_one(8) as win:
        if comm.rank == last:
            win.lock(last)
        comm.Barrier()
        if comm.rank == 0:
            with pytest.raises(rma.RmaTimeoutError):
                win.lock_all(timeout=0.05)
        comm.Barrier()
        if comm.rank == last:
            win.unlock(last)
        comm.Barrier()
        with win.lock(comm.rank, timeout=20):  # exclusive, on every rank
            comm.Barrier()
        comm.Barrier()
        assert_usable(win, comm)


@pytest.mark.mpi(min_size=2)
def test_a_lock_with_no_time_takes_a_free_lock_and_no_other(make_one, comm):
    with make_one(8) as win:
        if comm.rank == 0:
            with win.lock(0, timeout=0):
                comm.Barrier()
                comm.Barrier()
        else:
            comm.Barrier()
            with pytest.raises(rma.RmaTimeoutError):
                win.lock(0, timeout=0)
            comm.Barrier()
        assert_usable(win, comm)


@pytest.mark.mpi(min_size=2)
def test_a_release_wakes_the_waiters_of_every_kind(make_one, comm):
    times = rounds(100, comm)
    with make_one(1, "i8") as win:
        win.local[:] = 0
        comm.Barrier()
        for number in range(times):
            if comm.rank == number % comm.size:
                with win.lock(0):
                    add_one(win, 0, 0)
                    os.sched_yield()
            elif (comm.rank + number) % 2:
                with win.lock_all():
                    pass
            else:
                with win.lock(0, exclusive=False):
                    pass
        comm.Barrier()
        if comm.rank == 0:
            assert win.local[0] == times


@pytest.mark.mpi(min_size=3)
def test_waiters_are_served_in_the_order_of_their_calls(make_one, comm):
    pids = comm.allgather(os.getpid())
    with make_one(comm.size + 1, "i8") as win:
        win.local[:] = -1
        win.local[0] = 1
        comm.Barrier()
        if comm.rank == 0:
            with win.lock(0):
                for rank in range(1, comm.size):
                    comm.send("your turn to ask", rank)
                    asleep(pids[rank])
            comm.Barrier()
            assert win.local[1:].tolist() == [*range(1, comm.size), -1]
        else:
            comm.recv(source=0)
            with win.lock(0, exclusive=comm.rank != 2):
                place = np.zeros(1, "i8")
                win.fetch_and_op(np.ones(1, "i8"), place, 0, 0)
                win.flush(0)
                win.put(np.array([comm.rank]), 0, int(place[0]))
            comm.Barrier()


@pytest.mark.mpi(min_size=3)
def test_readers_do_not_starve_a_writer(make_one, comm):
    with make_one(1, "i8") as win:
        win.local[:] = 0
        comm.Barrier()
        if comm.rank == 0:
            with win.lock(0, timeout=30):
                win.put(np.ones(1, "i8"), 0, 0)
        else:
            seen = np.zeros(1, "i8")
            while seen[0] == 0:
                with win.lock(0, exclusive=False):
                    win.get(seen, 0, 0)
                    win.flush(0)
                    end = time.monotonic() + 0.001  # readers overlap most of the time
                    while time.monotonic() < end:
                        pass
        comm.Barrier()


@pytest.mark.mpi(min_size=2)
def test_the_lock_may_be_asserted_instead_of_checked(make_one, comm):
    right, _ = neighbours(comm)
    with make_one(8) as win:
        with win.lock(right, assertion=rma.NOCHECK):
            win.put(np.ones(8, "u1"), right, 0)
        comm.Barrier()
        assert (win.local == 1).all()
        comm.Barrier()
        assert_usable(win, comm)


def test_threads_of_one_process_share_its_lock(make_one, comm):
    right, _ = neighbours(comm)
    with make_one(8) as win:
        with win.lock(right), pytest.raises(rma.EpochError):
            win.lock(right)
        comm.Barrier()
        assert_usable(win, comm)
