# SPDX-License-Identifier: Apache-2.0
"""Request forms return an object that tells when the operation is complete."""

import asyncio
import gc
import weakref

import numpy as np
import pytest

import hixl_rma as rma
from support.windows import assert_bytes, neighbours, pattern, raw

pytestmark = pytest.mark.mpi

SIZES = [0, 8, 5000, (1 << 20) + 3, 6 << 20]


@pytest.mark.parametrize("size", SIZES)
def test_a_request_that_is_done_has_placed_its_bytes_at_the_target(make, comm, size):
    right, left = neighbours(comm)
    with make(size) as win:
        comm.Barrier()
        with win.lock(right):
            origin = pattern(comm.rank, size)
            request = win.rput(origin, right, 0)
            request.wait(timeout=60)
            assert request.done
            assert request.test()
            origin[:] = 0
            back = np.zeros(size, "u1")
            answer = win.rget(back, right, 0)
            answer.wait(timeout=60)
            assert_bytes(back, pattern(comm.rank, size))
        comm.Barrier()
        assert_bytes(raw(win), pattern(left, size))


def test_a_request_may_be_tested_until_it_is_done(make, comm):
    right, left = neighbours(comm)
    size = 6 << 20
    with make(size) as win:
        comm.Barrier()
        with win.lock(right):
            request = win.rput(pattern(comm.rank, size), right, 0)
            while not request.test():
                pass
            assert request.done
        comm.Barrier()
        assert_bytes(raw(win), pattern(left, size))


def test_a_request_may_be_waited_for_again_after_it_is_done(make, comm):
    right, _ = neighbours(comm)
    with make(8) as win:
        comm.Barrier()
        with win.lock(right):
            request = win.rput(pattern(1, 8), right, 0)
            for _ in range(3):
                request.wait(timeout=20)
                assert request.test()


def test_a_request_may_be_awaited(make, comm):
    right, left = neighbours(comm)
    size = 2 << 20

    async def move(win):
        requests = [win.rput(pattern(comm.rank, size), right, 0)]
        requests += [win.rput(pattern(k, 8), right, size + 8 * k) for k in range(4)]
        for request in requests:
            await request
        assert all(request.done for request in requests)

    with make(size + 32) as win:
        comm.Barrier()
        with win.lock(right):
            asyncio.run(move(win))
        comm.Barrier()
        assert_bytes(raw(win)[:size], pattern(left, size))
        for k in range(4):
            assert_bytes(raw(win)[size + 8 * k : size + 8 * k + 8], pattern(k, 8))


def test_several_requests_finish_in_whatever_order_they_are_waited_for(make, comm):
    right, left = neighbours(comm)
    sizes = [8, 3 << 20, 64, 2 << 20, 1]
    starts = np.concatenate([[0], np.cumsum(sizes)]).tolist()
    with make(sum(sizes)) as win:
        comm.Barrier()
        with win.lock(right):
            requests = [
                win.rput(pattern(comm.rank + k, size), right, start)
                for k, (size, start) in enumerate(zip(sizes, starts, strict=False))
            ]
            for request in reversed(requests):
                request.wait(timeout=60)
        comm.Barrier()
        for k, (size, start) in enumerate(zip(sizes, starts, strict=False)):
            assert_bytes(raw(win)[start : start + size], pattern(left + k, size))


def test_a_request_survives_the_end_of_its_epoch(make, comm):
    right, _ = neighbours(comm)
    size = 3 << 20
    with make(size) as win:
        raw(win)[:] = pattern(comm.rank, size)
        comm.Barrier()
        result = np.zeros(size, "u1")
        with win.lock_all():
            request = win.rget(result, right, 0)
        # The end of the epoch completed it; the request is still there to be asked.
        assert_bytes(result, pattern(right, size))
        result[:] = 0
        request.wait(timeout=20)
        assert request.done
        assert (result == 0).all(), "bytes landed after the epoch was closed"
        comm.Barrier()


def test_a_request_nobody_keeps_is_completed_by_the_flush(make, comm):
    right, left = neighbours(comm)
    size = 4 << 20
    with make(size) as win:
        comm.Barrier()
        with win.lock(right):
            win.rput(pattern(comm.rank, size), right, 0)
            gc.collect()
            win.flush(right)
        comm.Barrier()
        assert_bytes(raw(win), pattern(left, size))


def test_an_rget_may_fill_strided_memory(make, comm):
    right, _ = neighbours(comm)
    with make(1000, "i4") as win:
        win.local[:] = np.arange(1000) + comm.rank
        comm.Barrier()
        result = np.full((50, 40), -1, "i4")
        with win.lock(right, exclusive=False):
            win.rget(result[::2, ::-1], right, 0).wait(timeout=20)
        expected = np.full((50, 40), -1, "i4")
        expected[::2, ::-1] = (np.arange(1000) + right).reshape(25, 40)
        assert_bytes(result, expected)
        comm.Barrier()


@pytest.mark.mpi(min_size=2)
def test_a_large_request_is_completed_while_its_origin_makes_no_call(make, comm):
    size = 8 << 20
    with make(size) as win:
        raw(win)[:] = 0
        comm.Barrier()
        with win.lock_all():
            if comm.rank == 0:
                requests = [
                    win.rput_notify(pattern(rank, size), rank, 0, notification=3)
                    for rank in range(1, comm.size)
                ]
                for rank in range(1, comm.size):  # what they saw, before anything is asked here
                    assert comm.recv(source=rank) == 1
                for request in requests:
                    request.wait(timeout=20)
            else:
                count = win.wait_notify(3, source=0, timeout=60).count
                assert_bytes(raw(win), pattern(comm.rank, size))
                comm.send(count, dest=0)


def test_a_request_nobody_keeps_does_not_keep_its_memory_for_good(make, comm):
    right, _ = neighbours(comm)
    size = 2 << 20

    class Tracked(np.ndarray):
        """An array that can be referred to weakly."""

    with make(size) as win:
        comm.Barrier()
        with win.lock(right):
            kept = []
            for _ in range(3):
                origin = np.ones(size, "u1").view(Tracked)
                kept.append(weakref.ref(origin))
                win.rput(origin, right, 0).wait(timeout=20)
                del origin
                win.rput(np.ones(size, "u1"), right, 0)
            gc.collect()
            assert [ref() for ref in kept] == [None] * 3
            win.flush(right)


def test_accumulate_requests_give_what_the_plain_forms_give(make, comm):
    right, left = neighbours(comm)
    with make(100, "i8") as win:
        win.local[:] = 5
        comm.Barrier()
        values, old = np.arange(100) + comm.rank, np.zeros(100, "i8")
        with win.lock(right):
            win.raccumulate(values, right, 0, op="sum").wait(timeout=20)
            win.rget_accumulate(values, old, right, 0, op="max").wait(timeout=20)
        assert_bytes(old, values + 5)
        comm.Barrier()
        assert_bytes(win.local, np.arange(100) + left + 5)


def test_request_forms_check_their_arguments_before_a_byte_moves(make, comm):
    right, _ = neighbours(comm)
    with make(64) as win:
        raw(win)[:] = 7
        comm.Barrier()
        origin = np.full(8, 9, "u1")
        with pytest.raises(rma.EpochError):
            win.rput(origin, right, 0)
        with win.lock(right):
            for verb in (win.rput, win.rget, win.raccumulate):
                with pytest.raises(rma.RangeError):
                    verb(origin, right, 57)
        comm.Barrier()
        assert (raw(win) == 7).all()
        assert (origin == 9).all()


@pytest.mark.parametrize("timeout", [-1, -0.001, float("nan")])
def test_a_request_refuses_a_timeout_that_is_no_time(make, comm, timeout):
    right, _ = neighbours(comm)
    with make(8) as win:
        comm.Barrier()
        with win.lock(right):
            request = win.rput(pattern(1, 8), right, 0)
            with pytest.raises(rma.ArgumentError):
                request.wait(timeout=timeout)
            request.wait(timeout=20)
