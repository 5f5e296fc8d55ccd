# SPDX-License-Identifier: Apache-2.0
"""Start, complete, post and wait synchronise the ranks they name and no others."""

import numpy as np
import pytest

import hixl_rma as rma
from support.windows import assert_bytes, assert_usable, neighbours, pattern, raw, rounds

pytestmark = pytest.mark.mpi


def test_wait_returns_when_the_puts_of_the_started_epoch_are_placed(make, comm):
    right, left = neighbours(comm)
    size = 5000
    with make(size) as win:
        for number in range(rounds(50, comm)):
            win.post([left])
            win.start([right])
            win.put(pattern(comm.rank + number, size), right, 0)
            win.complete()
            win.wait()
            assert_bytes(raw(win), pattern(left + number, size), f"round {number}")


def test_a_target_may_overwrite_its_memory_after_its_wait(make, comm):
    right, left = neighbours(comm)
    with make(500, "i4") as win:
        for number in range(rounds(100, comm)):
            win.local[:] = -1
            win.post([left])
            win.start([right])
            seen = np.zeros(500, "i4")
            win.get(seen, right, 0)
            win.complete()
            win.wait()
            assert (seen == -1).all(), "the get ran before the post"
            win.post([left])
            win.start([right])
            win.put(np.full(500, number, "i4"), right, 0)
            win.complete()
            win.wait()
            assert (win.local == number).all()


def test_empty_groups_are_legal(make_one, comm):
    with make_one(64) as win:
        win.post([])
        win.start([])
        win.complete()
        assert win.test()
        with win.post([]), win.start(()):
            pass
        assert_usable(win, comm)


def test_groups_name_only_the_ranks_that_take_part(make, comm):
    # Rank 0 exposes itself to all; nobody else posts or waits.
    with make(comm.size * 8) as win:
        everybody = list(range(comm.size))
        if comm.rank == 0:
            win.post(everybody)
        with win.start([0]):
            win.put(pattern(comm.rank, 8), 0, 8 * comm.rank)
        if comm.rank == 0:
            win.wait()
            for rank in everybody:
                assert_bytes(raw(win)[8 * rank : 8 * rank + 8], pattern(rank, 8))


def test_one_origin_may_start_towards_all(make, comm):
    with make(8) as win:
        everybody = range(comm.size)
        win.post([0])
        if comm.rank == 0:
            with win.start(everybody):
                for rank in everybody:
                    win.put(pattern(rank, 8), rank, 0)
        win.wait()
        assert_bytes(raw(win), pattern(comm.rank, 8))


@pytest.mark.mpi(min_size=2)
def test_ranks_may_start_before_or_after_they_post_without_a_deadlock(make_one, comm):
    # Ranks without a cycle of starts that precede their posts: each rank starts towards lower ones.
    lower, higher = list(range(comm.rank)), list(range(comm.rank + 1, comm.size))
    with make_one(comm.size, "i8") as win:
        win.local[:] = -1
        comm.Barrier()
        for number in range(rounds(50, comm)):
            if comm.rank % 2:
                win.post(higher)
                win.start(lower)
            else:
                win.start(lower)
                win.post(higher)
            for target in lower:
                win.put(np.array([number]), target, comm.rank)
            win.complete()
            win.wait()
            assert (win.local[comm.rank + 1 :] == number).all()


def test_test_is_false_until_the_origin_completes_and_true_once(make_one, comm):
    right, left = neighbours(comm)
    with make_one(64) as win:
        win.post([left])
        win.start([right])
        assert not win.test()
        comm.Barrier()
        win.complete()
        comm.Barrier()
        assert win.test()
        with pytest.raises(rma.EpochError):
            win.test()
        with pytest.raises(rma.EpochError):
            win.wait()
        assert_usable(win, comm)


def test_the_post_may_be_asserted_instead_of_checked(make_one, comm):
    right, left = neighbours(comm)
    with make_one(64) as win:
        win.post([left], rma.NOCHECK)
        comm.Barrier()  # what the assertion promises
        win.start([right], rma.NOCHECK)
        win.put(pattern(comm.rank, 64), right, 0)
        win.complete()
        win.wait()
        assert_bytes(raw(win), pattern(left, 64))
        comm.Barrier()
        assert_usable(win, comm)


@pytest.mark.mpi(min_size=2)
def test_a_start_without_its_post_times_out_and_is_resumed(make_one, comm):
    right, left = neighbours(comm)
    with make_one(64) as win:
        if comm.rank == 0:
            started = False

            def access(timeout):
                # Whichever of start and complete waits for the post may time out.
                nonlocal started
                if not started:
                    win.start([right], timeout=timeout)
                    started = True
                win.complete(timeout=timeout)

            with pytest.raises(rma.RmaTimeoutError) as caught:
                access(0.05)
            assert str(right) in str(caught.value)
            with pytest.raises(rma.EpochError):
                win.fence()
            comm.Barrier()
            access(20)
        else:
            comm.Barrier()
        if left == 0:
            win.post([0])
            win.wait()
        comm.Barrier()
        assert_usable(win, comm)


@pytest.mark.mpi(min_size=2)
def test_a_wait_that_timed_out_is_resumed_by_the_same_call(make_one, comm):
    right, left = neighbours(comm)
    with make_one(64) as win:
        win.post([left])
        if comm.rank == 0:
            with pytest.raises(rma.RmaTimeoutError) as caught:
                win.wait(timeout=0.05)
            assert str(left) in str(caught.value)
            for call in (win.fence, lambda: win.post([left]), win.free):
                with pytest.raises(rma.EpochError):
                    call()
        comm.Barrier()
        if right == 0:
            with win.start([0]):
                win.put(pattern(5, 64), 0, 0)
        if comm.rank == 0:
            win.wait()
            assert_bytes(raw(win), pattern(5, 64))
        if right != 0:
            with win.start([right]):
                pass
        if comm.rank != 0:
            win.wait()
        comm.Barrier()
        assert_usable(win, comm)


BAD_GROUPS = {
    "rank beyond the size": ([99], rma.RangeError),
    "negative rank": ([-1], rma.RangeError),
    "huge rank": ([1 << 70], rma.RangeError),
    "a rank twice": ([0, 0], rma.ArgumentError),
    "float": ([0.0], rma.ArgumentTypeError),
    "bool": ([True], rma.ArgumentTypeError),
    "text": (["0"], rma.ArgumentTypeError),
    "nothing in a list": ([None], rma.ArgumentTypeError),
    "no group": (None, rma.ArgumentTypeError),
    "a number": (0, rma.ArgumentTypeError),
}


@pytest.mark.parametrize("case", BAD_GROUPS)
def test_a_bad_group_is_a_typed_error(make_one, comm, case):
    group, expected = BAD_GROUPS[case]
    with make_one(64) as win:
        for opener in (win.post, win.start):
            with pytest.raises(expected) as caught:
                opener(group)
            assert type(caught.value) is expected
        assert_usable(win, comm)
