# SPDX-License-Identifier: Apache-2.0
"""One window may be used by many threads of a process."""

import threading

import numpy as np
import pytest

import hixl_rma as rma
from support.threads import Worker
from support.windows import assert_bytes, neighbours, pattern, raw, rounds

pytestmark = pytest.mark.mpi

THREADS = 8


def test_threads_put_and_flush_side_by_side(make, comm):
    right, left = neighbours(comm)
    block, times = 3000, rounds(50, comm)
    with make(THREADS * block) as win:

        def work(number):
            for turn in range(times):
                origin = pattern(100 * comm.rank + number + turn, block)
                win.put(origin, right, number * block)
                win.flush(right)
                back = np.zeros(block, "u1")
                win.get(back, right, number * block)
                win.flush_local(right)
                assert_bytes(back, origin)

        with win.lock_all():
            for worker in [Worker(work, number) for number in range(THREADS)]:
                worker.result()
        comm.Barrier()
        for number in range(THREADS):
            wanted = pattern(100 * left + number + times - 1, block)
            assert_bytes(raw(win)[number * block : (number + 1) * block], wanted)


def test_sums_of_all_threads_of_all_ranks_are_exact(make, comm):
    times = rounds(100, comm)
    with make(600, "i8") as win:
        win.local[:] = 0
        comm.Barrier()

        def work(number):
            old = np.zeros(1, "i8")
            for _ in range(times):
                win.accumulate(np.ones(600 - number, "i8"), 0, number)
                win.fetch_and_op(np.ones(1, "i8"), old, 0, 0)
                win.flush(0)

        with win.lock_all():
            for worker in [Worker(work, number) for number in range(4)]:
                worker.result()
        comm.Barrier()
        if comm.rank == 0:
            calls = times * comm.size
            wanted = np.full(600, 4 * calls)
            wanted[0] = calls + 4 * calls
            wanted[1:3] = 2 * calls, 3 * calls
            assert np.array_equal(win.local, wanted)


def test_locks_taken_by_different_threads_for_different_ranks_are_independent(make_one, comm):
    times = rounds(100, comm)
    with make_one(1, "i8") as win:
        win.local[:] = 0
        comm.Barrier()

        def work(target):
            for _ in range(times):
                with win.lock(target):
                    value = np.zeros(1, "i8")
                    win.get(value, target, 0)
                    win.flush(target)
                    win.put(value + 1, target, 0)

        for worker in [Worker(work, target) for target in range(comm.size)]:
            worker.result()
        comm.Barrier()
        assert win.local[0] == times * comm.size


def test_other_threads_run_while_one_waits(make_one, comm):
    right, left = neighbours(comm)
    with make_one(8) as win:
        waiter = Worker(lambda: win.wait_notify(1, timeout=50))
        waiter.until_asleep()
        counted = 0
        for _ in range(1000):  # needs the GIL, which the waiter must not hold
            counted += 1
        assert counted == 1000
        comm.Barrier()
        with win.lock(right):
            win.notify(right, notification=1)
        assert waiter.result().source == left


def test_one_window_may_be_made_while_threads_use_another(make_one, comm):
    right, _ = neighbours(comm)
    stop = threading.Event()
    with make_one(4096) as win, win.lock_all():

        def work():
            done = 0
            while not stop.is_set() or not done:
                win.put(pattern(1, 4096), right, 0)
                win.flush(right)
                done += 1
            return done

        worker = Worker(work)
        try:
            for _ in range(rounds(20, comm)):
                with rma.Window.allocate(64, comm=comm):
                    pass
        finally:
            stop.set()
        assert worker.result() > 0
        comm.Barrier()
