# SPDX-License-Identifier: Apache-2.0
"""Puts and gets move exactly the bytes asked for, whatever their number and alignment."""

import os

import numpy as np
import pytest

import hixl_rma as rma
from support.windows import assert_bytes, neighbours, pattern, raw, rounds

pytestmark = pytest.mark.mpi

GUARD = 0x5A
SIZES = [
    *range(18),
    *(31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513, 1023, 1024, 1025),
    *(4095, 4096, 4097, 8191, 8192, 8193, 65_535, 65_536, 65_537, (1 << 20) - 1, 1 << 20),
    *((1 << 20) + 1, (4 << 20) + 5),
]
LARGEST = max(SIZES)
WINDOW = LARGEST + 256


def test_a_put_of_any_size_changes_the_bytes_asked_for_and_no_other(make, comm):
    right, left = neighbours(comm)
    with make(WINDOW) as win:
        for number, size in enumerate(SIZES):
            disp = 1 + number % 67
            origin = pattern(comm.rank + number, size)
            raw(win)[: disp + size + 64] = GUARD
            comm.Barrier()
            with win.lock(right, exclusive=False):
                win.put(origin, right, disp)
                win.flush(right)
                origin[:] = 0xEE  # complete: what happens to the origin no longer matters
            comm.Barrier()
            expected = np.full(disp + size + 64, GUARD, "u1")
            expected[disp : disp + size] = pattern(left + number, size)
            assert_bytes(raw(win)[: expected.size], expected, f"put of {size} bytes")


def test_a_get_of_any_size_fills_the_buffer_and_nothing_beside_it(make, comm):
    right, _ = neighbours(comm)
    with make(WINDOW) as win:
        raw(win)[:] = pattern(comm.rank, WINDOW)
        comm.Barrier()
        theirs = pattern(right, WINDOW)
        for number, size in enumerate(SIZES):
            disp = number % 61
            memory = np.full(size + 64, GUARD, "u1")
            with win.lock(right, exclusive=False):
                win.get(memory[32 : 32 + size], right, disp)
                win.flush(right)
            assert_bytes(memory[32 : 32 + size], theirs[disp : disp + size], f"get of {size} bytes")
            assert (memory[:32] == GUARD).all()
            assert (memory[32 + size :] == GUARD).all()
        comm.Barrier()
        assert_bytes(raw(win), pattern(comm.rank, WINDOW), "memory that was only read")


def test_puts_to_odd_addresses_leave_the_guard_bytes_intact(make, comm):
    right, left = neighbours(comm)
    slot = 64
    with make(16 * 17 * slot) as win:
        memory = pattern(comm.rank, 64)
        for shift in range(16):  # the address of the origin
            raw(win)[:] = GUARD
            comm.Barrier()
            with win.lock(right, exclusive=False):
                for at in range(16):
                    for length in range(1, 18):
                        disp = (at * 17 + length - 1) * slot + 16 + at
                        win.put(memory[shift : shift + length], right, disp)
            comm.Barrier()
            expected = np.full((16, 17, slot), GUARD, "u1")
            theirs = pattern(left, 64)
            for at in range(16):
                for length in range(1, 18):
                    piece = expected[at, length - 1, 16 + at : 16 + at + length]
                    piece[:] = theirs[shift : shift + length]
            assert_bytes(raw(win), expected, f"origin shifted by {shift}")


def test_large_copies_may_be_unaligned_on_both_sides(make, comm):
    right, left = neighbours(comm)
    size = (3 << 20) + 17
    with make(size + 256) as win:
        memory = pattern(comm.rank, size + 128)
        for here, there in ((0, 1), (1, 0), (3, 61), (63, 1), (64, 64), (17, 17)):
            raw(win)[:] = GUARD
            comm.Barrier()
            with win.lock(right, exclusive=False):
                win.put(memory[here : here + size], right, there)
            comm.Barrier()
            expected = np.full(size + 256, GUARD, "u1")
            expected[there : there + size] = pattern(left, size + 128)[here : here + size]
            assert_bytes(raw(win), expected, f"put from {here} to {there}")
            back = np.zeros(size + 1, "u1")
            with win.lock(right, exclusive=False):
                win.get(back[1:], right, there)
            assert_bytes(back[1:], memory[here : here + size], f"get from {there}")
            comm.Barrier()


def test_every_rank_reaches_every_rank_itself_included(make, comm):
    with make(comm.size, "u4") as win:
        win.local[:] = 0
        comm.Barrier()
        with win.lock_all():
            for target in range(comm.size):
                win.put(np.array([100 * comm.rank + target], "u4"), target, comm.rank)
            win.flush_all()
            seen = np.zeros((comm.size, 1), "u4")
            for target in range(comm.size):
                win.get(seen[target], target, comm.rank)
        comm.Barrier()
        assert win.local.tolist() == [100 * origin + comm.rank for origin in range(comm.size)]
        assert seen.ravel().tolist() == [100 * comm.rank + target for target in range(comm.size)]


def test_thousands_of_puts_may_be_outstanding_before_one_flush(make, comm):
    right, left = neighbours(comm)
    count = rounds(5000, comm)
    with make(count, "u4") as win:
        win.local[:] = 0
        comm.Barrier()
        values = np.arange(count, dtype="u4") * np.uint32(3) + np.uint32(comm.rank)
        with win.lock(right):
            for index in range(count):
                win.put(values[index : index + 1], right, index)
            win.flush(right)
            values[:] = 0
        comm.Barrier()
        assert np.array_equal(win.local, np.arange(count, dtype="u4") * np.uint32(3) + left)


def test_flush_local_gives_the_origin_back(make, comm):
    right, left = neighbours(comm)
    for size in (8, 5000, 2 << 20):
        with make(2 * size) as win:
            comm.Barrier()
            origin = pattern(comm.rank, size)
            with win.lock(right):
                win.put(origin, right, 0)
                win.flush_local(right)
                origin[:] = pattern(comm.rank + 50, size)
                win.put(origin, right, size)
                win.flush_local_all()
                origin[:] = 0
            comm.Barrier()
            assert_bytes(raw(win)[:size], pattern(left, size), "first put")
            assert_bytes(raw(win)[size:], pattern(left + 50, size), "second put")


def test_flush_local_gives_a_get_its_data(make, comm):
    right, _ = neighbours(comm)
    with make(100_000) as win:
        raw(win)[:] = pattern(comm.rank, 100_000)
        comm.Barrier()
        with win.lock(right, exclusive=False):
            for size in (1, 8, 4097, 100_000):
                result = np.zeros(size, "u1")
                win.get(result, right, 100_000 - size)
                win.flush_local(right)
                assert_bytes(result, pattern(right, 100_000)[100_000 - size :])
        comm.Barrier()


@pytest.mark.mpi(min_size=3)
@pytest.mark.parametrize("verb", ["put", "accumulate", "get_accumulate", "fetch_and_op", "cas"])
def test_after_a_flush_a_third_rank_gets_the_new_value(make, comm, verb):
    with make(4, "i8") as win:
        win.local[:] = 0
        comm.Barrier()
        value, old = np.array([41], "i8"), np.zeros(1, "i8")
        if comm.rank == 0:
            with win.lock(1, exclusive=False):
                if verb == "put":
                    win.put(value, 1, 2)
                elif verb == "accumulate":
                    win.accumulate(value, 1, 2)
                elif verb == "get_accumulate":
                    win.get_accumulate(value, old, 1, 2)
                elif verb == "fetch_and_op":
                    win.fetch_and_op(value, old, 1, 2)
                else:
                    win.compare_and_swap(value, np.zeros(1, "i8"), old, 1, 2)
                win.flush(1)
                comm.send(None, 2)
                comm.recv(source=2)
        elif comm.rank == 2:
            comm.recv(source=0)
            with win.lock(1, exclusive=False):
                win.get(old, 1, 2)
                win.flush(1)
            comm.send(None, 0)
            assert old[0] == 41
        comm.Barrier()


def test_a_put_from_the_window_itself_reads_the_local_memory(make, comm):
    right, left = neighbours(comm)
    with make(256) as win:
        raw(win)[:128] = pattern(comm.rank, 128)
        comm.Barrier()
        with win.lock(right):
            win.put(win.local[:128], right, 128)
        comm.Barrier()
        assert_bytes(raw(win)[128:], pattern(left, 128))
        with win.lock(comm.rank):
            win.put(win.local[128:], comm.rank, 128)  # onto itself
            win.flush(comm.rank)
        assert_bytes(raw(win)[128:], pattern(left, 128))


def test_overlapping_puts_of_one_epoch_leave_one_of_the_writers_in_each_byte(make, comm):
    right, _ = neighbours(comm)
    size = 5000
    with make(size + 16) as win:
        memory = raw(win)
        memory[:] = GUARD
        comm.Barrier()
        with win.lock(right):
            for index in range(16):
                win.put(np.full(size, index, "u1"), right, index)
        comm.Barrier()
        assert (memory[15:size] < 16).all()
        assert memory[0] == 0
        assert memory[size + 14] == 15
        assert memory[size + 15] == GUARD


def test_operations_of_no_bytes_are_legal_everywhere_in_the_window(make, comm):
    right, _ = neighbours(comm)
    nothing = np.empty(0, "i4")
    with make(16, "i4") as win:
        win.local[:] = comm.rank
        comm.Barrier()
        with win.lock(right):
            for disp in (0, 7, 16):  # the end of the window is a legal place for nothing
                win.put(nothing, right, disp)
                win.get(nothing.copy(), right, disp)
                win.accumulate(nothing, right, disp)
                win.get_accumulate(nothing, nothing.copy(), right, disp)
                win.put_v([], right)
                win.get_v([], right)
                win.put_v([(nothing, disp)], right)
                win.rput(nothing, right, disp).wait(timeout=20)
            with pytest.raises(rma.RangeError):
                win.put(nothing, right, 17)
        comm.Barrier()
        assert (win.local == comm.rank).all()


def test_a_put_is_seen_by_the_loads_of_the_target_after_a_flush(make, comm):
    # The target polls its own memory and calls nothing but sync.
    right, left = neighbours(comm)
    with make(2, "i8") as win:
        win.local[:] = 0
        comm.Barrier()
        with win.lock_all():
            win.put(np.array([comm.rank + 5], "i8"), right, 1)
            win.flush(right)
            win.put(np.array([1], "i8"), right, 0)
            win.flush(right)
            while win.local[0] == 0:
                win.sync()
                os.sched_yield()
            assert win.local[1] == left + 5
        comm.Barrier()


def test_a_target_may_poll_itself_with_an_atomic_read(make, comm):
    right, _ = neighbours(comm)
    with make(1, "i8") as win:
        win.local[:] = 0
        comm.Barrier()
        with win.lock_all():
            win.accumulate(np.array([9], "i8"), right, 0, op="replace")
            win.flush(right)
            seen = np.zeros(1, "i8")
            while seen[0] == 0:
                win.fetch_and_op(np.zeros(1, "i8"), seen, comm.rank, 0, op="no_op")
                win.flush_local(comm.rank)
                os.sched_yield()
            assert seen[0] == 9
        comm.Barrier()
