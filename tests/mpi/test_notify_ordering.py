# SPDX-License-Identifier: Apache-2.0
"""Stress: a notification never overtakes its data, is never torn, and always wakes its waiter."""

import time

import numpy as np
import pytest

from support.threads import ProcessorQueue, Worker, stolen_seconds
from support.windows import environment, neighbours, rounds

pytestmark = pytest.mark.mpi

BLOCKS = 4


def block_words(number):
    """Sizes from one word to more than a streaming copy needs, another one in each round."""
    if number % 500 == 499:
        return 96 * 1024  # 768 KiB a block
    return (1, 16, 512, 2048, 7, 100)[number % 6]


def run_rounds(win, comm, times):
    right, left = neighbours(comm)
    largest = 96 * 1024
    memory = win.local.reshape(BLOCKS, largest)
    origin = np.zeros(largest, "u8")
    win.lock_all()
    for number in range(1, times + 1):
        words = block_words(number)
        origin[:words] = number
        for block in range(BLOCKS - 1):
            win.put(origin[:words], right, block * largest)
        win.put_notify(origin[:words], right, (BLOCKS - 1) * largest, notification=1, value=number)
        note = win.wait_notify(1, timeout=50)
        assert (note.source, note.count, note.value) == (left, 1, number)
        stale = np.flatnonzero(memory[:, :words] != number)
        assert not stale.size, f"round {number}: {stale.size} words came after the notification"
        win.notify(left, notification=2)  # the memory may be overwritten
        win.wait_notify(2, timeout=50)
    win.unlock_all()
    comm.Barrier()


@pytest.mark.deadline(200)
def test_four_blocks_and_a_notification_are_seen_in_that_order(make, comm):
    with make(BLOCKS * 96 * 1024, "u8") as win:
        win.local[:] = 0
        comm.Barrier()
        run_rounds(win, comm, rounds(10_000, comm))


@pytest.mark.deadline(200)
def test_the_order_holds_for_waiters_that_sleep(make, comm):
    with environment(HIXL_RMA_SPIN_US="0"), make(BLOCKS * 96 * 1024, "u8") as win:
        win.local[:] = 0
        comm.Barrier()
        run_rounds(win, comm, rounds(2_000, comm))


def test_count_and_value_of_a_record_are_never_of_different_times(make, comm):
    # Every notification has the same value, hence in each look value = count * value.
    right, left = neighbours(comm)
    times, weight = rounds(20_000, comm), 1_000_003
    with make(8) as win:
        comm.Barrier()

        def send():
            for _ in range(times):
                win.notify(right, notification=7, value=weight)

        with win.lock_all():
            sender = Worker(send)
            looks = taken = 0
            while taken < times:
                looks += 1
                note = win.test_notify(7, source=left)
                if note is None:
                    continue
                # What is reported are all values not yet reported, at least those taken.
                count, value = win.reset_notify(7)
                assert (note.value + value) % weight == 0
                assert (note.value + value) // weight == note.count + count
                taken += note.count + count
            sender.result()
        assert taken == times
        comm.Barrier()


def ping_pong(win, comm, times):
    """Two ranks wake each other, the rest sleep; return the seconds of each round.

    Time in which either of the two was awake, but another process had the processor, is taken off.
    """
    taken, queued = np.zeros(times), np.zeros(times)
    queue = ProcessorQueue()
    before = queue.seconds()
    win.lock_all()
    if comm.rank > 1:
        win.wait_notify(3, timeout=800)
    for number in range(times if comm.rank < 2 else 0):
        begin = time.perf_counter()
        if comm.rank == 0:
            win.notify(1, notification=1)
            win.wait_notify(2, timeout=50)
        else:
            win.wait_notify(1, timeout=50)
            win.notify(0, notification=2)
        taken[number] = time.perf_counter() - begin
        queued[number] = (now := queue.seconds()) - before
        before = now
    if comm.rank == 0:
        for rank in range(2, comm.size):
            win.notify(rank, notification=3)
    win.unlock_all()
    queue.close()
    theirs = comm.sendrecv(queued, 1 - comm.rank, source=1 - comm.rank) if comm.rank < 2 else queued
    comm.Barrier()
    # A round here overlaps with three there.
    return taken - queued - np.convolve(theirs, np.ones(3), "same")


@pytest.mark.mpi(min_size=2)
@pytest.mark.deadline(120)
def test_no_wake_up_is_lost_without_spinning(make, comm):
    # A lost one would show as the 100 ms after which a sleeper looks for signals.
    with environment(HIXL_RMA_SPIN_US="0"), make(8) as win:
        comm.Barrier()
        taken = ping_pong(win, comm, rounds(5_000, comm))
        assert (taken < 0.09).all(), f"the longest rounds took {np.sort(taken)[-5:]} s"
        # The machine below this one may take its processors away.
        late = int((taken > 0.02).sum())
        assert late <= 1 + taken.size // 1000, f"{late} rounds took more than 20 ms"


@pytest.mark.mpi(min_size=2)
@pytest.mark.slow
@pytest.mark.deadline(900)
def test_no_wake_up_is_lost_in_a_million_rounds(make_one, comm):
    with environment(HIXL_RMA_SPIN_US="0"), make_one(8) as win:
        comm.Barrier()
        before = stolen_seconds()
        taken = ping_pong(win, comm, rounds(1_000_000))
        stolen = stolen_seconds() - before
        late = np.sort(taken[taken > 0.02])
        # The machine below this one may take its processors away, and it tells for how long.
        assert late.sum() <= stolen, f"{late[-5:]} s, {stolen} s of them without a processor"
        assert (late < 0.09).all(), f"the longest rounds took {late[-5:]} s"


@pytest.mark.deadline(120)
def test_no_wake_up_is_lost_among_many_waiting_threads(make, comm):
    right, _ = neighbours(comm)
    threads, times = 4, rounds(200, comm)

    def answer(number):
        for _ in range(times):
            win.wait_notify(number, timeout=50)
            win.notify(right, notification=100 + number)

    with environment(HIXL_RMA_SPIN_US="0"), make(8) as win:
        comm.Barrier()
        with win.lock_all():
            workers = [Worker(answer, number) for number in range(threads)]
            left = neighbours(comm)[1]
            for _ in range(times):
                for number in range(threads):
                    win.notify(left, notification=number)
                win.wait_notify_all(range(100, 100 + threads), timeout=50)
            for worker in workers:
                worker.result()
        comm.Barrier()
