# SPDX-License-Identifier: Apache-2.0
"""Accumulates of all ranks on the same elements are atomic, the owner's among them."""

import os

import numpy as np
import pytest

import hixl_rma as rma
from support.windows import rounds

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("code", ["i8", "i4", "u1", "f8", "f4", "c16", "f2"])
def test_concurrent_sums_are_exact(make, comm, code):
    count, times = 1500, rounds(40, comm)
    with make(count, code) as win:
        win.local[:] = 0
        comm.Barrier()
        values = np.ones(count, code)
        with win.lock_all():
            for _ in range(times):
                win.accumulate(values, 0, 0)
        comm.Barrier()
        if comm.rank == 0:
            assert (win.local == np.array(times * comm.size).astype(code)).all()


def test_concurrent_sums_of_overlapping_unaligned_ranges_are_exact(make, comm):
    times, shift = rounds(60, comm), 3
    ranges = [(0, 1200), (500, 900), (511, 2), (7, 1024)][: comm.size]
    with make(shift + 1531 * 4) as win:
        win.local[:] = 0
        comm.Barrier()
        start, length = ranges[comm.rank]
        values = np.full(length, 3, "i4")
        with win.lock_all():
            for _ in range(times):
                win.accumulate(values, 0, shift + 4 * start)
        comm.Barrier()
        if comm.rank == 0:
            wanted = np.zeros(1531, "i4")
            for start, length in ranges:
                wanted[start : start + length] += 3 * times
            assert np.array_equal(win.local[shift:].copy().view("i4"), wanted)


@pytest.mark.parametrize("code", ["i8", "u4", "u2", "f8"])
def test_fetch_and_op_gives_every_ticket_once(make, comm, code):
    times = rounds(1500, comm)
    with make(1, code) as win:
        win.local[:] = 0
        comm.Barrier()
        tickets, one = np.zeros(times, code), np.ones(1, code)
        with win.lock_all():
            for index in range(times):
                win.fetch_and_op(one, tickets[index : index + 1], 0, 0)
            win.flush(0)
        assert (np.diff(tickets) > 0).all(), "tickets of one rank go up"
        everything = np.sort(np.concatenate(comm.allgather(tickets)))
        assert np.array_equal(everything, np.arange(times * comm.size))


def test_compare_and_swap_has_exactly_one_winner(make, comm):
    cells = rounds(500, comm)
    with make(cells, "i8") as win:
        win.local[:] = 0
        comm.Barrier()
        mine, free = np.array([comm.rank + 1]), np.zeros(1, "i8")
        old = np.full(cells, -1, "i8")
        with win.lock_all():
            for index in range(cells):
                win.compare_and_swap(mine, free, old[index : index + 1], 0, index)
            win.flush(0)
        comm.Barrier()
        seen = np.array(comm.allgather(old))
        assert ((seen == 0).sum(axis=0) == 1).all(), "one winner for each cell"
        if comm.rank == 0:
            assert np.array_equal(win.local, (seen == 0).argmax(axis=0) + 1)


@pytest.mark.parametrize("code", ["i8", "u2", "u1"])
def test_counting_by_compare_and_swap_is_exact(make, comm, code):
    times = rounds(60, comm)
    with make(1, code) as win:
        win.local[:] = 0
        comm.Barrier()
        old = np.zeros(1, code)
        with win.lock_all():
            for _ in range(times):
                guess = old.copy()
                while True:
                    win.compare_and_swap(guess + np.ones(1, code), guess, old, 0, 0)
                    win.flush(0)
                    if old == guess:
                        break
                    guess = old.copy()
        comm.Barrier()
        if comm.rank == 0:
            assert win.local[0] == np.array(times * comm.size).astype(code)


@pytest.mark.parametrize("code", ["i8", "i2"])
def test_every_verb_may_be_mixed_on_one_cell(make, comm, code):
    times = rounds(200, comm)
    with make(4, code) as win:
        win.local[:] = 0
        comm.Barrier()
        one, four = np.ones(1, code), np.ones(4, code)
        old, many = np.zeros(1, code), np.zeros(4, code)
        with win.lock_all():
            for number in range(times):
                verb = (number + comm.rank) % 4
                if verb == 0:
                    win.fetch_and_op(one, old, 0, 2)
                elif verb == 1:
                    win.accumulate(one, 0, 2)
                elif verb == 2:
                    win.get_accumulate(four, many, 0, 0)
                else:
                    win.raccumulate(one, 0, 2).wait(timeout=20)
        comm.Barrier()
        calls = sum(1 for rank in range(comm.size) for n in range(times) if (n + rank) % 4 == 2)
        if comm.rank == 0:
            assert win.local.tolist() == [
                calls, calls, np.array(times * comm.size).astype(code), calls,
            ]  # fmt: skip


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("code", ["c16", "c8", "i8"])
def test_an_atomic_read_is_never_torn(make, comm, code):
    times = rounds(1000, comm)
    with make(5, code) as win:
        win.local[:] = 0
        comm.Barrier()
        with win.lock_all():
            if comm.rank == 1:
                for number in range(times):
                    value = number * ((1 + 1j) if code[0] == "c" else (1 << 32) + 1)
                    win.accumulate(np.array([value], code), 0, 3, op="replace")
            else:
                seen = np.zeros(1, code)
                for _ in range(times):
                    win.fetch_and_op(np.zeros(1, code), seen, 0, 3, op="no_op")
                    win.flush(0)
                    halves = (
                        seen.view("i4") if code == "i8" else seen.view(f"f{seen.itemsize // 2}")
                    )
                    assert halves[0] == halves[1]
        comm.Barrier()


def test_a_list_linked_by_compare_and_swap_holds_every_node_once(make, comm):
    # Each node is a cell of its owner: the number of the next node. The head is at rank 0.
    nodes = rounds(100, comm)
    with make(nodes + 1, "i8") as win:
        win.local[:] = -1
        comm.Barrier()
        with win.lock_all():
            old = np.array([-1])
            for index in range(nodes):
                name = np.array([comm.rank * nodes + index])
                guess = old.copy()
                while True:
                    win.accumulate(guess, comm.rank, index, op="replace")
                    win.flush(comm.rank)
                    win.compare_and_swap(name, guess, old, 0, nodes)
                    win.flush(0)
                    if old == guess:
                        break
                    guess = old.copy()
                old[:] = name
        comm.Barrier()
        if comm.rank == 0:
            with win.lock_all():
                at, seen = win.local[nodes : nodes + 1].copy(), []
                while at[0] != -1:
                    seen.append(int(at[0]))
                    owner, index = divmod(seen[-1], nodes)
                    win.get(at, owner, index)
                    win.flush(owner)
            assert sorted(seen) == list(range(nodes * comm.size))
        comm.Barrier()


def test_a_mutex_made_of_atomics_excludes(make, comm):
    # The queue lock of Mellor-Crummey and Scott: cells are tail, counter; next, blocked of each.
    times, nobody = rounds(30, comm), -1
    tail, counter, following, blocked = range(4)

    def swap(win, value, rank, cell, op="replace"):
        old = np.zeros(1, "i8")
        win.fetch_and_op(np.array([value]), old, rank, cell, op=op)
        win.flush(rank)
        return int(old[0])

    with make(4, "i8") as win:
        win.local[:] = [nobody, 0, nobody, 0]
        comm.Barrier()
        with win.lock_all():
            for _ in range(times):
                swap(win, nobody, comm.rank, following)
                swap(win, 1, comm.rank, blocked)
                before = swap(win, comm.rank, 0, tail)
                if before != nobody:
                    swap(win, comm.rank, before, following)
                    while swap(win, 0, comm.rank, blocked, "no_op"):
                        os.sched_yield()
                value = np.zeros(1, "i8")
                win.get(value, 0, counter)
                win.flush(0)
                win.put(value + 1, 0, counter)
                win.flush(0)
                old = np.zeros(1, "i8")
                win.compare_and_swap(np.array([nobody]), np.array([comm.rank]), old, 0, tail)
                win.flush(0)
                if old != comm.rank:
                    while (heir := swap(win, 0, comm.rank, following, "no_op")) == nobody:
                        os.sched_yield()
                    swap(win, 0, heir, blocked)
        comm.Barrier()
        if comm.rank == 0:
            assert win.local[counter] == times * comm.size


BAD_ELEMENTS = {
    "two elements": (np.ones(2, "i8"), np.ones(1, "i8")),
    "no element": (np.empty(0, "i8"), np.ones(1, "i8")),
    "result of two": (np.ones(1, "i8"), np.ones(2, "i8")),
    "result of another type": (np.ones(1, "i8"), np.ones(1, "i4")),
    "result of another kind": (np.ones(1, "i8"), np.ones(1, "f8")),
}


@pytest.mark.parametrize("case", BAD_ELEMENTS)
def test_single_element_verbs_take_one_element_and_one_type(make, comm, case):
    origin, result = BAD_ELEMENTS[case]
    target = comm.size - 1
    with make(4, "i8") as win:
        win.local[:] = 5
        comm.Barrier()
        with win.lock(target):
            with pytest.raises((rma.ArgumentError, rma.ArgumentTypeError)):
                win.fetch_and_op(origin, result, target, 0)
            with pytest.raises((rma.ArgumentError, rma.ArgumentTypeError)):
                win.compare_and_swap(origin, origin, result, target, 0)
            with pytest.raises((rma.ArgumentError, rma.ArgumentTypeError)):
                win.compare_and_swap(np.ones(1, "i8"), np.ones(1, "i2"), result, target, 0)
        comm.Barrier()
        assert (win.local == 5).all()
        assert (result == 1).all()


def test_the_result_of_a_get_accumulate_has_the_size_and_type_of_the_origin(make, comm):
    target = comm.size - 1
    with make(4, "i8") as win:
        win.local[:] = 5
        comm.Barrier()
        with win.lock(target):
            for result in (np.ones(3, "i8"), np.ones(4, "i4"), np.ones(4, "f8")):
                with pytest.raises((rma.ArgumentError, rma.ArgumentTypeError)):
                    win.get_accumulate(np.ones(4, "i8"), result, target, 0)
                assert (result == 1).all()
            frozen = np.ones(4, "i8")
            frozen.flags.writeable = False
            with pytest.raises(rma.ReadOnlyBufferError):
                win.get_accumulate(np.ones(4, "i8"), frozen, target, 0)
            with pytest.raises(rma.ReadOnlyBufferError):
                win.fetch_and_op(np.ones(1, "i8"), frozen[:1], target, 0)
        comm.Barrier()
        assert (win.local == 5).all()
