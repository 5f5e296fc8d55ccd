# SPDX-License-Identifier: Apache-2.0
"""Fences close an epoch on all ranks and order what lies before and after them."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import hixl_rma as rma
from support.windows import assert_bytes, assert_usable, neighbours, pattern, raw, rounds

pytestmark = pytest.mark.mpi


def test_a_fence_completes_the_puts_of_all_ranks_at_their_targets(make, comm):
    right, left = neighbours(comm)
    size = 5000
    with make(size) as win:
        win.fence()
        for number in range(rounds(50, comm)):
            origin = pattern(comm.rank + number, size)
            win.put(origin, right, 0)
            win.fence()
            origin[:] = 0
            assert_bytes(raw(win), pattern(left + number, size), f"round {number}")
            win.fence()
        win.fence(rma.NOSUCCEED)


def test_a_target_may_overwrite_its_memory_after_its_fence(make, comm):
    right, left = neighbours(comm)
    with make(2000, "i4") as win:
        win.fence()
        for number in range(rounds(50, comm)):
            win.put(np.full(2000, 10 * number + comm.rank, "i4"), right, 0)
            win.fence()
            assert (win.local == 10 * number + left).all()
            win.local[:] = -1
            win.fence()
            seen = np.zeros(2000, "i4")
            win.get(seen, right, 0)
            win.fence()
            assert (seen == -1).all()
        win.fence(rma.NOSUCCEED)


def test_a_fence_gives_gets_their_data(make, comm):
    right, _ = neighbours(comm)
    with make(5000) as win:
        raw(win)[:] = pattern(comm.rank, 5000)
        result = np.zeros(5000, "u1")
        with win.fence():
            win.get(result, right, 0)
        assert_bytes(result, pattern(right, 5000))


ASSERTIONS = list(itertools.product((0, rma.NOSTORE), (0, rma.NOPUT), (0, rma.NOSTORE)))


@pytest.mark.parametrize(("first", "middle", "last"), ASSERTIONS)
def test_every_legal_assertion_keeps_the_data_exact(make_one, comm, first, middle, last):
    right, left = neighbours(comm)
    with make_one(64) as win:
        for number in range(3):
            # NOSTORE speaks of the epoch that ends, NOPUT of the one that begins.
            win.fence(rma.NOPRECEDE | first)
            win.put(pattern(comm.rank + number, 64), right, 0)
            win.fence(middle)
            assert_bytes(raw(win), pattern(left + number, 64))
            win.fence(rma.NOSUCCEED | last)


def test_a_put_after_a_fence_without_predecessor_comes_after_the_fence_of_the_target(make, comm):
    # Each rank stores into its own memory up to its fence: a put that did not wait would be lost.
    right, left = neighbours(comm)
    with make(8, "i8") as win:
        for number in range(rounds(200, comm)):
            win.local[:] = -1
            win.fence(rma.NOPRECEDE)
            win.put(np.full(8, number + comm.rank), right, 0)
            win.fence(rma.NOSUCCEED)
            assert (win.local == number + left).all()


@pytest.mark.parametrize("assertion", [1 << 30, -1, 1 << 70])
def test_an_unknown_assertion_is_an_argument_error(make_one, comm, assertion):
    with make_one(64) as win:
        with pytest.raises(rma.ArgumentError):
            win.fence(assertion)
        assert_usable(win, comm)


@pytest.mark.parametrize("assertion", ["0", 1.0, None])
def test_an_assertion_that_is_no_number_is_a_type_error(make_one, comm, assertion):
    with make_one(64) as win:
        with pytest.raises(rma.ArgumentTypeError):
            win.fence(assertion)
        assert_usable(win, comm)


@pytest.mark.mpi(min_size=2)
def test_a_fence_that_timed_out_is_resumed_by_the_same_call(make, comm):
    right, left = neighbours(comm)
    with make(64) as win:
        win.fence()
        if comm.rank == 0:
            win.put(pattern(7, 64), right, 0)
            with pytest.raises(rma.RmaTimeoutError) as caught:
                win.fence(timeout=0.05)
            assert not isinstance(caught.value, rma.NotifyTimeoutError)
            for call in (
                lambda: win.put(pattern(8, 64), right, 0),
                lambda: win.lock(right),
                lambda: win.start([right]),
                win.free,
            ):
                with pytest.raises(rma.EpochError):
                    call()
            with pytest.raises(rma.RmaTimeoutError):
                win.fence(timeout=0)
        comm.Barrier()
        win.fence()
        if left == 0:
            assert_bytes(raw(win), pattern(7, 64))
        win.fence(rma.NOSUCCEED)
        assert_usable(win, comm)


@pytest.mark.mpi(min_size=2)
def test_the_environment_gives_a_fence_its_timeout(make_one, comm, monkeypatch):
    monkeypatch.setenv("HIXL_RMA_TIMEOUT", "1")
    comm.Barrier()  # making the window has the same time-out
    with make_one(64) as win:
        if comm.rank == 0:
            with pytest.raises(rma.RmaTimeoutError):
                win.fence()
        comm.Barrier()
        win.fence(timeout=20)
        win.fence(rma.NOSUCCEED, timeout=20)
        win.free(timeout=20)


def test_fences_of_two_windows_may_run_in_two_threads(make, comm):
    right, left = neighbours(comm)
    times = rounds(100, comm)

    def work(win, value):
        win.fence()
        for number in range(times):
            win.put(np.full(8, value + number), right, 0)
            win.fence()
            assert (win.local == left * 1000 + (value % 1000) + number).all()
            win.fence()
        win.fence(rma.NOSUCCEED)

    with make(8, "i8") as first, make(8, "i8") as second, ThreadPoolExecutor(2) as pool:
        done = [
            pool.submit(work, first, comm.rank * 1000),
            pool.submit(work, second, comm.rank * 1000 + 500),
        ]
        for future in done:
            future.result(timeout=50)
