# SPDX-License-Identifier: Apache-2.0
"""The calls that notify: with a put, a vector, a get, a request, or alone."""

import numpy as np
import pytest

import hixl_rma as rma
from support.threads import Worker
from support.windows import assert_bytes, neighbours, pattern, raw, rounds

pytestmark = pytest.mark.mpi


def test_put_notify_shows_its_payload_with_the_notification(make, comm):
    right, left = neighbours(comm)
    size = 5000
    with make(size) as win:
        comm.Barrier()
        with win.lock_all():
            for number in range(rounds(100, comm)):
                win.put_notify(pattern(comm.rank + number, size), right, 0, notification=7)
                win.wait_notify(7, timeout=20)
                assert_bytes(raw(win), pattern(left + number, size), f"round {number}")
                win.notify(left, notification=8)  # the memory may be overwritten
                win.wait_notify(8, timeout=20)
        comm.Barrier()


@pytest.mark.parametrize("size", [0, 1, 8, 4097, (1 << 20) + 3, 5 << 20])
def test_the_payload_may_have_any_size(make, comm, size):
    right, left = neighbours(comm)
    with make(size + 1) as win:
        raw(win)[:] = 0x5A
        comm.Barrier()
        with win.lock(right):
            win.put_notify(pattern(comm.rank, size), right, 1, notification=7, value=size)
        assert win.wait_notify(7, timeout=20) == (7, left, 1, size)
        assert_bytes(raw(win)[1:], pattern(left, size))
        assert raw(win)[0] == 0x5A
        comm.Barrier()


def test_payload_and_target_of_put_notify_may_be_strided(make, comm):
    right, left = neighbours(comm)
    with make((6, 8), "i4") as win:
        win.local[:] = -1
        comm.Barrier()
        values = np.arange(24, dtype="i4").reshape(4, 6) + comm.rank
        with win.lock(right):
            win.put_notify(values[::2, ::-3], right, np.s_[1:3, ::5], notification=7)
        win.wait_notify(7, timeout=20)
        expected = np.full((6, 8), -1, "i4")
        expected[1:3, ::5] = (np.arange(24, dtype="i4").reshape(4, 6) + left)[::2, ::-3]
        assert_bytes(win.local, expected)
        comm.Barrier()


def test_rput_notify_is_a_request_whose_end_means_placed(make, comm):
    right, left = neighbours(comm)
    size = 3 << 20
    with make(size) as win:
        comm.Barrier()
        with win.lock(right):
            request = win.rput_notify(pattern(comm.rank, size), right, 0, notification=7, value=5)
            request.wait(timeout=60)
            assert request.done
        assert win.wait_notify(7, timeout=20) == (7, left, 1, 5)
        assert_bytes(raw(win), pattern(left, size))
        comm.Barrier()


@pytest.mark.parametrize("count", [1, 7, 2000])
def test_a_vector_gives_one_notification_after_all_its_pieces(make, comm, count):
    right, left = neighbours(comm)
    size = 40
    with make(count * size) as win:
        comm.Barrier()
        origin = pattern(comm.rank, count * size)
        pieces = [(origin[i * size : (i + 1) * size], i * size) for i in range(count)]
        with win.lock(right):
            win.put_notify_v(pieces[::-1], right, notification=7, value=11)
        assert win.wait_notify(7, timeout=20) == (7, left, 1, 11)
        assert_bytes(raw(win), pattern(left, count * size))
        assert win.test_notify(7) is None
        comm.Barrier()


def test_get_notify_tells_the_owner_that_its_memory_was_read(make, comm):
    # The owner overwrites as soon as it is told: the reader must have everything by then.
    right, left = neighbours(comm)
    size = 20_000
    with make(size) as win:
        raw(win)[:] = pattern(comm.rank, size)
        comm.Barrier()
        result = np.zeros(size, "u1")
        with win.lock_all():
            for number in range(rounds(60, comm)):
                win.get_notify(result, right, 0, notification=7, value=number)
                assert win.wait_notify(7, timeout=20) == (7, left, 1, number)
                raw(win)[:] = pattern(comm.rank + number + 1, size)
                win.flush(right)
                assert_bytes(result, pattern(right + number, size), f"round {number}")
                win.notify(left, notification=8)  # there is something new to read
                win.wait_notify(8, timeout=20)
        comm.Barrier()


def test_get_notify_may_fill_strided_memory(make, comm):
    right, left = neighbours(comm)
    with make(24, "i4") as win:
        win.local[:] = np.arange(24) + comm.rank
        comm.Barrier()
        result = np.full((6, 8), -1, "i4")
        with win.lock(right):
            win.get_notify(result[::2, ::-1], right, 0, notification=7)
            win.flush(right)
        expected = np.full((6, 8), -1, "i4")
        expected[::2, ::-1] = (np.arange(24) + right).reshape(3, 8)
        assert_bytes(result, expected)
        assert win.wait_notify(7, timeout=20) == (7, left, 1, 1)
        comm.Barrier()


@pytest.mark.parametrize("order", ["all", "self"])
def test_both_orders_cover_the_payload(make, comm, order):
    right, left = neighbours(comm)
    size = 70_000
    with make(size) as win:
        comm.Barrier()
        with win.lock_all():
            for number in range(rounds(50, comm)):
                origin = pattern(comm.rank + number, size)
                win.put_notify(origin, right, 0, notification=7, order=order)
                win.wait_notify(7, timeout=20)
                assert_bytes(raw(win), pattern(left + number, size), f"round {number}")
                win.notify(left, notification=8)
                win.wait_notify(8, timeout=20)
        comm.Barrier()


def earlier_operations(win, target, number, size):
    """Fill four quarters of the target by four different paths."""
    block = np.full(size // 8, number, "i8")
    quarter = block.size
    yield lambda: win.put(block, target, 0)
    yield lambda: win.put_v([(block[:5], 8 * quarter), (block[5:], 8 * quarter + 40)], target)
    yield lambda: win.accumulate(block, target, 16 * quarter, op="replace")
    yield lambda: win.put(np.repeat(block, 2)[::2], target, 24 * quarter)


def everything_is(win, number, size):
    values = raw(win)[: 4 * size].view("i8")
    wrong = np.flatnonzero(values != number)
    assert not wrong.size, f"round {number}: {wrong.size} old values, the first at {wrong[0]}"


@pytest.mark.parametrize("notifier", ["notify", "put_notify", "put_notify_v", "rput_notify"])
def test_a_notification_covers_everything_put_before_by_whatever_path(make, comm, notifier):
    right, left = neighbours(comm)
    size = 24_000
    empty = np.empty(0, "u1")
    with make(4 * size) as win:
        raw(win)[:] = 0
        comm.Barrier()
        calls = {
            "notify": lambda: win.notify(right, notification=7),
            "put_notify": lambda: win.put_notify(empty, right, 0, notification=7),
            "put_notify_v": lambda: win.put_notify_v([], right, notification=7),
            "rput_notify": lambda: win.rput_notify(empty, right, 0, notification=7).wait(20),
        }
        with win.lock_all():
            for number in range(1, rounds(60, comm)):
                for operation in earlier_operations(win, right, number, size):
                    operation()
                calls[notifier]()
                win.wait_notify(7, timeout=20)
                everything_is(win, number, size)
                win.notify(left, notification=8)
                win.wait_notify(8, timeout=20)
        comm.Barrier()


def test_a_notification_covers_what_other_threads_had_put_before_it_began(make, comm):
    right, left = neighbours(comm)
    size = 24_000
    with make(4 * size) as win:
        raw(win)[:] = 0
        comm.Barrier()
        with win.lock_all():
            for number in range(1, rounds(30, comm)):
                for operation in earlier_operations(win, right, number, size):
                    Worker(operation).result()
                win.notify(right, notification=7)
                win.wait_notify(7, timeout=20)
                everything_is(win, number, size)
                win.notify(left, notification=8)
                win.wait_notify(8, timeout=20)
        comm.Barrier()


FAILURES = {
    "put_notify beyond the end": (
        lambda win, t: win.put_notify(pattern(1, 8), t, 57, notification=7),
        rma.RangeError,
    ),
    "put_notify of nothing": (
        lambda win, t: win.put_notify(None, t, 0, notification=7),
        rma.ArgumentTypeError,
    ),
    "put_notify_v with one bad piece": (
        lambda win, t: win.put_notify_v(
            [(pattern(1, 8), 0), (pattern(1, 8), 57), (pattern(1, 8), 8)], t, notification=7
        ),
        rma.RangeError,
    ),
    "rput_notify beyond the end": (
        lambda win, t: win.rput_notify(pattern(1, 8), t, 57, notification=7),
        rma.RangeError,
    ),
    "get_notify beyond the end": (
        lambda win, t: win.get_notify(pattern(1, 8), t, 57, notification=7),
        rma.RangeError,
    ),
    "get_notify into read-only memory": (
        lambda win, t: win.get_notify(bytes(8), t, 0, notification=7),
        rma.ReadOnlyBufferError,
    ),
}


@pytest.mark.parametrize("case", FAILURES)
def test_an_operation_that_fails_delivers_no_notification(make, comm, case):
    call, expected = FAILURES[case]
    right, left = neighbours(comm)
    with make(64) as win:
        raw(win)[:] = pattern(comm.rank, 64)
        comm.Barrier()
        with win.lock(right):
            with pytest.raises(expected):
                call(win, right)
            win.notify(right, notification=8)
        assert win.wait_notify(8, timeout=20).source == left
        assert win.notify_count(7) == 0
        assert_bytes(raw(win), pattern(comm.rank, 64))
        comm.Barrier()


def test_notifications_of_one_id_are_seen_in_the_order_they_were_sent(make, comm):
    # The payload of the k-th notification is complete when k have been counted.
    right, left = neighbours(comm)
    times = rounds(500, comm)
    with make(times, "i8") as win:
        win.local[:] = -1
        comm.Barrier()
        win.lock_all()
        for number in range(times):
            win.put_notify(np.array([number + comm.rank]), right, number, notification=7)
            if number % 7 == comm.rank:
                seen = number // 2 + 1
                win.wait_notify(7, count=seen, consume=False, timeout=20)
                assert np.array_equal(win.local[:seen], np.arange(seen) + left)
        win.unlock_all()
        win.wait_notify(7, count=times, timeout=20)
        assert np.array_equal(win.local, np.arange(times) + left)
        comm.Barrier()
