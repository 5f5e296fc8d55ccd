# SPDX-License-Identifier: Apache-2.0
"""Created windows whose bytes go through the owner's service thread.

Every suite with a window of each kind runs over `staged`, too; here is what staged alone can get
wrong: operations that are not done when the call returns, and what they leave behind.
"""

import gc
from pathlib import Path

import numpy as np
import pytest

import hixl_rma as rma
from support.leaks import Holdings, wait_until_clean
from support.windows import (
    Kind,
    assert_bytes,
    environment,
    meet,
    neighbours,
    open_window,
    pattern,
    raw,
    rounds,
)

pytestmark = pytest.mark.mpi

STAGED = Kind("create", "staged")
SIZES = [0, 1, 7, 8, 4097, 131_071, 131_073, (1 << 20) + 1, 64 << 20]


def test_the_transport_is_named_and_maps_nothing(comm):
    right, _ = neighbours(comm)
    with open_window(8, kind=STAGED, comm=comm) as win:
        assert win.transports == tuple(
            "self" if rank == comm.rank else "staged" for rank in range(comm.size)
        )
        if right != comm.rank:
            with pytest.raises(rma.UnsupportedError):
                win.remote(right)


@pytest.mark.parametrize("size", SIZES)
def test_puts_and_gets_of_every_size_arrive_whole(comm, size):
    right, left = neighbours(comm)
    if size > 1 << 21 and comm.size > 2:
        size //= comm.size
    with open_window(size, kind=STAGED, comm=comm) as win:
        mine, theirs = pattern(comm.rank, size), pattern(right, size)
        back = np.zeros(size, "u1")
        with win.lock(right):
            win.put(mine, right, 0)
        comm.Barrier()
        assert_bytes(raw(win), pattern(left, size), "what was put")
        raw(win)[:] = pattern(comm.rank, size)
        comm.Barrier()
        with win.lock(right):
            win.get(back, right, 0)
        assert_bytes(back, theirs, "what was got")
        comm.Barrier()


def test_ranks_without_memory_take_part(comm):
    size = 0 if comm.rank == 0 else 64
    with open_window(size, "u8", kind=STAGED, comm=comm) as win, win.fence():
        if comm.size > 1:
            win.put(np.full(8, comm.rank, "u8"), comm.size - 1, 8 * (comm.rank % 8))
        with pytest.raises(rma.RangeError):
            win.put(np.ones(1, "u8"), 0, 0 if comm.size > 1 else 64)


def test_accumulates_of_all_ranks_and_of_the_owner_are_exact(comm):
    times, count = rounds(200, comm), 700  # two stripes
    ones = np.ones(count)
    with open_window(count, "f8", kind=STAGED, comm=comm) as win:
        with win.lock_all():
            for _ in range(times):
                win.accumulate(ones, 0, 0)
                win.fetch_and_op(np.ones(1), np.zeros(1), 0, 5)
            win.flush_all()
        comm.Barrier()
        if comm.rank == 0:
            expected = np.full(count, float(times * comm.size))
            expected[5] *= 2
            assert (win.local == expected).all()
        comm.Barrier()


def test_a_notification_comes_after_its_data_however_much_it_is(comm):
    right, left = neighbours(comm)
    sizes = [8, 1000, 300_000, 3, 2_000_000]
    with open_window(2_000_000, kind=STAGED, comm=comm) as win, win.lock_all():
        for number in range(rounds(100, comm)):
            size = sizes[number % len(sizes)]
            win.put_notify(pattern(number, size), right, 0, notification=number % 4)
            win.wait_notify(number % 4, source=left, timeout=20)
            assert_bytes(raw(win)[:size], pattern(number, size))
            win.notify(left, notification=9)
            win.wait_notify(9, source=right, timeout=20)


def test_requests_complete_in_any_order_of_waiting(comm):
    right, _ = neighbours(comm)
    blocks = [pattern(number, 100_000) for number in range(20)]
    backs = [np.zeros(100_000, "u1") for _ in blocks]
    with open_window(2_000_000, kind=STAGED, comm=comm) as win, win.lock_all():
        puts = [win.rput(block, right, 100_000 * i) for i, block in enumerate(blocks)]
        gets = [win.rget(back, right, 100_000 * i) for i, back in enumerate(backs)]
        for request in reversed(puts + gets):
            request.wait(timeout=20)
            assert request.test()
        for block, back in zip(blocks, backs, strict=True):
            assert_bytes(back, block)


def test_a_request_that_nobody_keeps_is_carried_out(comm):
    right, _ = neighbours(comm)
    with open_window(1 << 20, kind=STAGED, comm=comm) as win:
        with win.lock_all():
            for number in range(100):
                win.rput(pattern(number, 10_000), right, 10_000 * number)
            gc.collect()
        comm.Barrier()
        for number in range(100):
            assert_bytes(raw(win)[10_000 * number :][:10_000], pattern(number, 10_000))
        comm.Barrier()


def test_a_local_flush_makes_the_origin_reusable(comm):
    right, _ = neighbours(comm)
    for size in (64, 5_000_000):
        with open_window(size, kind=STAGED, comm=comm) as win:
            origin = pattern(comm.rank, size)
            with win.lock(right):
                win.put(origin, right, 0)
                win.flush_local(right)
                origin[:] = 0
            comm.Barrier()
            assert_bytes(raw(win), pattern(neighbours(comm)[1], size))
            comm.Barrier()


@pytest.mark.mpi(min_size=2)
def test_leaving_with_operations_outstanding_hangs_nobody(comm):
    class Left(Exception):
        pass

    memory = np.zeros(1 << 24, "u1")
    data = np.ones(1 << 24, "u1")
    requests = []
    with environment(HIXL_RMA_TRANSPORTS="staged"):
        win = rma.Window.create(memory, comm=comm)
    win.lock_all()
    if comm.rank == 0:
        requests = [win.rput(data, 1, 0) for _ in range(8)]
    meet(comm)
    with pytest.raises(Left), win:
        raise Left
    memory[:] = 5
    for request in requests:
        with pytest.raises((rma.CanceledError, rma.PeerLostError, rma.StaleError)):
            request.wait(timeout=20)
    meet(comm)
    assert (memory == 5).all(), "a byte landed in memory that was given back"


@pytest.mark.deadline(240)
def test_windows_that_were_freed_leave_nothing(comm):
    memory = np.zeros(1 << 16, "u1")

    def make_and_free():
        right, _ = neighbours(comm)
        with environment(HIXL_RMA_TRANSPORTS="staged"):
            win = rma.Window.create(memory, comm=comm)
        with win, win.lock(right):
            win.put(memory[:5000], right, 0)
        comm.Barrier()

    def resident():
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    for _ in range(30):
        make_and_free()
    comm.Barrier()
    before, size = Holdings.now(), resident()
    comm.Barrier()
    for _ in range(rounds(200, comm)):
        make_and_free()
    comm.Barrier()
    leaked, growth = wait_until_clean(before), resident() - size
    comm.Barrier()
    assert not leaked, leaked
    assert growth < 3 << 20, f"{growth} bytes more are resident"
