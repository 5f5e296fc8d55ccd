# SPDX-License-Identifier: Apache-2.0
"""Operations and waits from any thread: of one rank, and of ranks that are threads of a process."""

import contextlib
import gc
import os
import random
import select
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import numpy as np
import pytest

import hixl_rma as rma
from hixl_rma.bootstrap import LocalBootstrap
from support.threads import Worker
from support.windows import assert_bytes, pattern, rounds

pytestmark = [pytest.mark.asan, pytest.mark.tsan]

LONG = 50  # [s] a time-out that no passing test comes near
THREADS = 4
TESTS = Path(__file__).resolve().parents[1]


@pytest.fixture
def win():
    with rma.Window.allocate(THREADS * 3000, comm=LocalBootstrap(), notifications=64) as window:
        yield window


@pytest.fixture
def run(monkeypatch):
    """Run a function as each of some ranks, in threads: run(size, f(window, rank)) -> results."""
    monkeypatch.setenv("HIXL_RMA_TIMEOUT", str(LONG))

    def run(size, function):
        job = f"threads-{uuid.uuid4()}"

        def rank_main(rank):
            with (
                LocalBootstrap(job, rank, size) as bootstrap,
                rma.Window.allocate(4096, comm=bootstrap, notifications=64) as window,
            ):
                return function(window, rank)

        return all_results([Worker(rank_main, rank) for rank in range(size)])

    return run


def all_results(workers):
    return [worker.result(LONG) for worker in workers]


# -- threads of one rank ------------------------------------------------------------------------


@pytest.mark.parametrize("every", [False, True])
def test_of_threads_that_give_back_one_lock_at_once_one_alone_does(win, every):
    for _ in range(rounds(200)):
        win.lock_all() if every else win.lock(0)
        barrier = threading.Barrier(2)

        def give_back(barrier=barrier):
            barrier.wait()
            try:
                win.unlock_all() if every else win.unlock(0)
            except (rma.BusyError, rma.EpochError):
                return 0
            return 1

        assert sum(all_results([Worker(give_back) for _ in range(2)])) == 1
    with win.lock(0):  # the lock was never given back more often than it was taken
        win.put(np.ones(1, "u1"), 0, 0)


def test_threads_put_get_and_flush_side_by_side(win):
    def work(number):
        place = number * 3000
        for turn in range(rounds(30)):
            origin = pattern(100 * number + turn, 3000)
            win.put(origin, 0, place)
            win.flush(0)
            back = np.zeros(3000, "u1")
            win.rget(back, 0, place).wait(timeout=LONG)
            assert_bytes(back, origin)

    with win.lock_all():
        all_results(Worker(work, number) for number in range(THREADS))


def test_sums_of_threads_are_exact(win):
    times = rounds(60)

    def work(number):
        old = np.zeros(1, "i8")
        for _ in range(times):
            win.accumulate(np.ones(1000 - number, "i8"), 0, 0)
            win.fetch_and_op(np.ones(1, "i8"), old, 0, 0)
            win.flush(0)

    with win.lock_all():
        all_results(Worker(work, number) for number in range(THREADS))
    sums = win.local[:8000].view("i8")
    assert sums[0] == 2 * THREADS * times
    assert sums[1 : 1000 - THREADS].tolist() == [THREADS * times] * (999 - THREADS)


def test_each_notification_of_many_threads_is_taken_by_one_waiting_thread(win):
    times = rounds(100)

    def send(number):
        origin = pattern(number, 16)
        for turn in range(times):
            win.put_notify(origin, 0, 16 * number, notification=7, value=turn)

    def take(count):
        return sum(win.wait_notify(7, count=count, timeout=LONG).value for _ in range(times))

    with win.lock_all():
        takers = [Worker(take, count) for count in (1, 2, 1)]
        all_results(Worker(send, number) for number in range(THREADS))
        assert sum(all_results(takers)) == THREADS * times * (times - 1) // 2
    assert win.notify_count(7) == 0


def test_a_selecting_thread_drains_what_other_threads_notify(win):
    total = THREADS * rounds(100)

    def send(number):
        for _ in range(total // THREADS):
            win.notify(0, notification=number)

    def drain():
        taken = 0
        while taken < total:
            assert select.select([win.notify_fileno()], [], [], LONG)[0]
            while (note := win.test_notify()) is not None:
                taken += note.count
        return taken

    with win.lock_all():
        drainer = Worker(drain)
        all_results(Worker(send, number) for number in range(THREADS))
        assert drainer.result(LONG) == total


@pytest.mark.parametrize("end", ["free", "abort"])
def test_the_end_of_a_window_ends_every_wait_in_it(end):
    win = rma.Window.allocate(8, comm=LocalBootstrap(), notifications=8)
    win.notify_fileno()
    waiters = [Worker(lambda: win.wait_notify(timeout=LONG)) for _ in range(THREADS)]
    for waiter in waiters:
        waiter.until_asleep()
    if end == "free":
        win.free()
    else:
        with contextlib.suppress(KeyError), win:
            raise KeyError
    for waiter in waiters:
        with pytest.raises(rma.ClosedError):
            waiter.result(LONG)


# -- ranks that are threads of one process ------------------------------------------------------


def test_ranks_in_threads_exchange_by_fences(run):
    def work(win, rank):
        right, left = (rank + 1) % 3, (rank + 2) % 3
        win.fence()
        for turn in range(rounds(10)):
            win.put(pattern(10 * turn + rank, 4000), right, 0)
            win.fence()
            assert_bytes(win.local[:4000], pattern(10 * turn + left, 4000))
            win.fence()

    run(3, work)


def test_ranks_in_threads_take_a_lock_in_turn(run):
    times = rounds(40)

    def work(win, rank):
        value = np.zeros(1, "i8")
        for _ in range(times):
            with win.lock(0):
                win.get(value, 0, 0)
                win.flush(0)
                value += 1
                win.put(value, 0, 0)
        win.fence()
        return int(win.local[:8].view("i8")[0])

    assert run(3, work)[0] == 3 * times


def test_ranks_in_threads_wait_for_each_others_notifications_in_more_threads(run):
    times = rounds(30)

    def work(win, rank):
        left, right = (rank + 2) % 3, (rank + 1) % 3

        def take(number):
            notes = [win.wait_notify(number, source=left, timeout=LONG) for _ in range(times)]
            return sum(note.value for note in notes)

        takers = [Worker(take, number) for number in range(THREADS)]
        plan = [number for number in range(THREADS) for _ in range(times)]
        random.Random(rank).shuffle(plan)
        with win.lock(right, exclusive=False):
            for number in plan:
                win.put_notify(pattern(number, 64), right, 64 * number, notification=number)
        assert all_results(takers) == [times] * THREADS
        for number in range(THREADS):
            assert_bytes(win.local[64 * number : 64 * number + 64], pattern(number, 64))

    run(3, work)


def test_a_rank_that_leaves_ends_the_waits_of_all_threads_of_the_others(run):
    asleep = threading.Barrier(2)

    def work(win, rank):
        if rank == 0:
            asleep.wait(LONG)
            with contextlib.suppress(KeyError), win:
                raise KeyError
            return "left"
        waiters = [Worker(lambda: win.wait_notify(3, source=0, timeout=LONG)) for _ in range(3)]
        for waiter in waiters:
            waiter.until_asleep()
        asleep.wait(LONG)
        for waiter in waiters:
            with pytest.raises(rma.PeerLostError):
                waiter.result(LONG)
        return "told"

    assert run(2, work) == ["left", "told"]


def test_a_rank_that_is_a_thread_keeps_the_memory_of_another_alive_that_has_gone(run):
    viewed, gone = threading.Barrier(2), threading.Barrier(2)

    def work(win, rank):
        if rank == 0:
            viewed.wait(LONG)
            with contextlib.suppress(KeyError), win:
                raise KeyError
            del win
            gone.wait(LONG)
            return ()
        transports, remote = win.transports, win.remote(0)
        viewed.wait(LONG)
        gone.wait(LONG)
        gc.collect()  # the other rank's window, if nothing else holds it
        remote[:] = 7
        assert remote.sum() == 7 * len(remote)
        return transports

    assert run(2, work)[1] == ("shm", "self")


# -- processes with several threads each --------------------------------------------------------

RANK = """
import sys
import numpy as np
import hixl_rma as rma
from hixl_rma.bootstrap import LocalBootstrap
from support.threads import Worker
from support.windows import assert_bytes, pattern

rank, times, threads = int(sys.argv[2]), int(sys.argv[3]), 4
other = 1 - rank
with LocalBootstrap(sys.argv[1], rank, 2) as bootstrap:
    with rma.Window.allocate(threads * 3000, comm=bootstrap, notifications=64) as win:
        assert win.transports[other] == "shm"

        def send(number):
            for turn in range(times):
                win.put_notify(
                    pattern(turn + number, 3000), other, number * 3000, notification=number
                )
                win.wait_notify(32 + number, timeout=50)

        def receive(number):
            place = slice(number * 3000, (number + 1) * 3000)
            for turn in range(times):
                win.wait_notify(number, timeout=50)
                assert_bytes(win.local[place], pattern(turn + number, 3000))
                win.notify(other, notification=32 + number)

        with win.lock_all():
            workers = [Worker(call, n) for n in range(threads) for call in (send, receive)]
            for worker in workers:
                worker.result(50)
"""


def test_threads_of_two_processes_exchange_blocks():
    command = [sys.executable, "-c", RANK, f"threads-{uuid.uuid4()}"]
    environ = dict(os.environ, HIXL_RMA_TRANSPORTS="shm")
    environ["PYTHONPATH"] = os.pathsep.join([str(TESTS), environ.get("PYTHONPATH", "")])
    with contextlib.ExitStack() as stack:
        ranks = []
        for rank in range(2):
            arguments = [str(rank), str(rounds(20))]
            process = subprocess.Popen([*command, *arguments], env=environ, cwd=TESTS)
            stack.callback(process.wait)
            stack.callback(process.kill)
            ranks.append(process)
        assert [process.wait(LONG) for process in ranks] == [0, 0]
