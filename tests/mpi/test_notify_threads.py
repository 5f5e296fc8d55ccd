# SPDX-License-Identifier: Apache-2.0
"""Any number of threads may wait; each notification is taken by exactly one."""

import random

import pytest

import hixl_rma as rma
from support.threads import Worker
from support.windows import neighbours, rounds

pytestmark = pytest.mark.mpi


def test_many_threads_wait_for_one_id_each(make, comm):
    right, left = neighbours(comm)
    threads, times = 16, rounds(30, comm)

    def work(number):
        return [win.wait_notify(number, timeout=50) for _ in range(times)]

    with make(8) as win:
        workers = [Worker(work, number) for number in range(threads)]
        comm.Barrier()
        plan = [number for number in range(threads) for _ in range(times)]
        random.Random(comm.rank).shuffle(plan)
        with win.lock(right, exclusive=False):
            for number in plan:
                win.notify(right, notification=number, value=number + 1)
        for number, worker in enumerate(workers):
            notes = worker.result()
            assert [note[:3] for note in notes] == [(number, left, 1)] * times
            assert sum(note.value for note in notes) == times * (number + 1)
        assert win.test_notify() is None
        comm.Barrier()


@pytest.mark.parametrize("threads", [2, 6])
def test_threads_on_one_id_take_each_notification_once(make, comm, threads):
    right, _ = neighbours(comm)
    each = rounds(300, comm)
    total = threads * each

    def work():
        return [win.wait_notify(7, timeout=50) for _ in range(each)]

    with make(8) as win:
        workers = [Worker(work) for _ in range(threads)]
        comm.Barrier()
        with win.lock(right, exclusive=False):
            for number in range(total):
                win.notify(right, notification=7, value=number)
        notes = [note for worker in workers for note in worker.result()]
        assert all(note.count == 1 for note in notes)
        assert sum(note.value for note in notes) == total * (total - 1) // 2
        assert win.notify_count(7) == 0
        comm.Barrier()


def test_threads_that_take_several_at_once_never_share_one(make_one, comm):
    right, _ = neighbours(comm)
    counts, times = [1, 2, 3, 5], rounds(60, comm)

    def work(count):
        return sum(win.wait_notify(7, count=count, timeout=50).value for _ in range(times))

    with make_one(8) as win:
        workers = [Worker(work, count) for count in counts]
        comm.Barrier()
        total = sum(counts) * times
        with win.lock(right, exclusive=False):
            for number in range(total):
                win.notify(right, notification=7, value=number)
        assert sum(worker.result() for worker in workers) == total * (total - 1) // 2
        assert win.notify_count(7) == 0
        comm.Barrier()


def test_waits_for_all_in_two_threads_never_take_halves(make_one, comm):
    right, _ = neighbours(comm)
    times = rounds(100, comm)

    def work(ids):
        for _ in range(times):
            win.wait_notify_all(ids, timeout=50)

    with make_one(8) as win:
        workers = [Worker(work, [3, 4]), Worker(work, [4, 3, 5])]
        comm.Barrier()
        with win.lock(right, exclusive=False):
            for _ in range(times):
                for number in (3, 4, 5, 4, 3):
                    win.notify(right, notification=number)
        for worker in workers:
            worker.result()
        assert win.test_notify() is None
        comm.Barrier()


def test_waiters_for_different_things_share_what_comes(make_one, comm):
    right, _ = neighbours(comm)
    times = rounds(100, comm)

    def any_of(ids):
        return sum(win.wait_notify(ids, timeout=50).count for _ in range(times))

    with make_one(8) as win:
        workers = [
            Worker(any_of, [3]),
            Worker(any_of, range(3, 6)),
            Worker(any_of, rma.ANY),
        ]
        comm.Barrier()
        with win.lock(right, exclusive=False):
            for _ in range(times):
                for number in (3, 3, 3):
                    win.notify(right, notification=number)
        assert [worker.result() for worker in workers] == [times] * 3
        assert win.test_notify() is None
        comm.Barrier()


def test_threads_notify_one_id_side_by_side(make, comm):
    right, left = neighbours(comm)
    threads, times = 6, rounds(300, comm)

    def work():
        for number in range(times):
            win.notify(right, notification=7, value=number)

    with make(8) as win:
        comm.Barrier()
        with win.lock_all():
            for worker in [Worker(work) for _ in range(threads)]:
                worker.result()
        note = win.wait_notify(7, count=threads * times, timeout=20)
        assert note == (7, left, threads * times, threads * times * (times - 1) // 2)
        comm.Barrier()


def test_resets_and_waits_together_take_each_notification_once(make_one, comm):
    right, _ = neighbours(comm)
    total = rounds(1500, comm)

    def reset_all():
        taken = [0, 0]
        while win.notify_count(8) == 0 or win.notify_count(7):
            count, value = win.reset_notify(7)
            taken[0] += count
            taken[1] += value
        return taken

    def test_all():
        taken = [0, 0]
        while win.notify_count(8) == 0 or win.notify_count(7):
            note = win.test_notify(7)
            if note is not None:
                taken[0] += note.count
                taken[1] += note.value
        return taken

    with make_one(8) as win:
        workers = [Worker(reset_all), Worker(test_all)]
        comm.Barrier()
        with win.lock(right, exclusive=False):
            for number in range(total):
                win.notify(right, notification=7, value=number)
            win.notify(right, notification=8)
        taken = [worker.result() for worker in workers]
        assert sum(count for count, _ in taken) == total
        assert sum(value for _, value in taken) == total * (total - 1) // 2
        comm.Barrier()
