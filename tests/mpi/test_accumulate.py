# SPDX-License-Identifier: Apache-2.0
"""Accumulates give what numpy gives, for every type and operation."""

import numpy as np
import pytest

import hixl_rma as rma
from support.reductions import (
    INTEGERS,
    OPERATIONS,
    TYPES,
    assert_equal,
    expected,
    operations_of,
    sample,
)
from support.windows import assert_bytes, neighbours, pattern, raw

pytestmark = pytest.mark.mpi

COUNT = 700  # more than one stripe of 4 KiB for most types


@pytest.mark.parametrize("code", TYPES)
@pytest.mark.parametrize("shift", [0, 4093], ids=["aligned", "unaligned"])
def test_every_operation_gives_what_numpy_gives(make, comm, code, shift):
    dtype = np.dtype(code)
    right, left = neighbours(comm)
    size = COUNT * dtype.itemsize
    with make(shift + size + 64) as win:
        for number, op in enumerate(operations_of(dtype)):
            before = sample(dtype, COUNT, seed=100 * comm.rank + number)
            raw(win)[:] = 0x5A
            raw(win)[shift : shift + size] = before.view("u1")
            comm.Barrier()
            values = sample(dtype, COUNT, seed=7 + comm.rank)
            with win.lock(right):
                win.accumulate(values, right, shift, op=op)
                win.flush(right)
                values[:] = 0
            comm.Barrier()
            wanted = expected(op, before, sample(dtype, COUNT, seed=7 + left))
            result = raw(win)[shift : shift + size].copy().view(dtype)
            assert_equal(result, wanted, f"{op} of {dtype}")
            assert (raw(win)[:shift] == 0x5A).all()
            assert (raw(win)[shift + size :] == 0x5A).all()
            comm.Barrier()


@pytest.mark.parametrize("code", TYPES)
def test_get_accumulate_returns_what_was_there_before(make, comm, code):
    dtype = np.dtype(code)
    right, left = neighbours(comm)
    with make(COUNT, dtype) as win:
        for number, op in enumerate(operations_of(dtype)):
            before = sample(dtype, COUNT, seed=100 * comm.rank + number)
            win.local[:] = before
            comm.Barrier()
            old = np.zeros(COUNT, dtype)
            with win.lock(right):
                win.get_accumulate(sample(dtype, COUNT, seed=comm.rank), old, right, 0, op=op)
                win.flush(right)
            assert_equal(old, sample(dtype, COUNT, seed=100 * right + number), f"{op}: result")
            comm.Barrier()
            wanted = expected(op, before, sample(dtype, COUNT, seed=left))
            assert_equal(win.local, wanted, f"{op} of {dtype}")
            comm.Barrier()


@pytest.mark.parametrize("code", TYPES)
def test_fetch_and_op_updates_one_element_and_returns_the_old(make, comm, code):
    dtype = np.dtype(code)
    right, left = neighbours(comm)
    with make(3, dtype) as win:
        for number, op in enumerate(operations_of(dtype)):
            before = sample(dtype, 3, seed=100 * comm.rank + number)
            win.local[:] = before
            comm.Barrier()
            old = np.zeros(1, dtype)
            with win.lock(right):
                win.fetch_and_op(sample(dtype, 1, seed=comm.rank), old, right, 1, op=op)
            theirs = sample(dtype, 3, seed=100 * right + number)
            assert_equal(old, theirs[1:2], f"{op}: result")
            comm.Barrier()
            wanted = before.copy()
            wanted[1:2] = expected(op, before[1:2], sample(dtype, 1, seed=left))
            assert_equal(win.local, wanted, f"{op} of {dtype}")
            comm.Barrier()


@pytest.mark.parametrize("code", "?" + INTEGERS)
@pytest.mark.parametrize("shift", [0, 3], ids=["aligned", "unaligned"])
def test_compare_and_swap_stores_only_where_the_old_value_is_the_expected(make, comm, code, shift):
    dtype = np.dtype(code)
    right, _ = neighbours(comm)
    size = dtype.itemsize
    first, second = np.array([1], dtype), np.array([0], dtype)
    with make(64) as win:
        raw(win)[:] = 0x5A
        raw(win)[shift : shift + size] = first.view("u1")
        comm.Barrier()
        with win.lock(right):
            old = np.zeros(1, dtype)
            win.compare_and_swap(second, second, old, right, shift)  # another value is there
            win.flush(right)
            assert old == first
            win.compare_and_swap(second, first, old, right, shift)
            win.flush(right)
            assert old == first
            win.fetch_and_op(first, old, right, shift, op="no_op")
            win.flush(right)
            assert old == second
        comm.Barrier()
        wanted = np.full(64, 0x5A, "u1")
        wanted[shift : shift + size] = second.view("u1")
        assert_bytes(raw(win), wanted)


def test_sums_wrap_around_as_integers_do(make, comm):
    right, _ = neighbours(comm)
    with make(64) as win:
        for code in INTEGERS:
            top, one = np.array([np.iinfo(code).max], code), np.array([1], code)
            raw(win)[: top.nbytes] = top.view("u1")
            comm.Barrier()
            with win.lock(right):
                win.accumulate(one, right, 0)
            comm.Barrier()
            assert raw(win)[: top.nbytes].copy().view(code)[0] == np.iinfo(code).min
            comm.Barrier()


def test_accumulate_sums_by_default(make, comm):
    right, left = neighbours(comm)
    with make(10, "f8") as win:
        win.local[:] = 1
        comm.Barrier()
        old = np.zeros(10)
        with win.lock(right):
            win.accumulate(np.full(10, comm.rank + 1.0), right)
            win.get_accumulate(np.full(10, 0.5), old, right)
            win.fetch_and_op(np.array([0.25]), old[:1], right)
        assert (old[1:] == comm.rank + 2.0).all()
        assert old[0] == comm.rank + 2.5
        comm.Barrier()
        assert (win.local[1:] == left + 2.5).all()
        assert win.local[0] == left + 2.75


def test_origins_and_results_of_accumulates_may_be_strided(make, comm):
    right, left = neighbours(comm)
    with make((6, 5), "i4") as win:
        win.local[:] = 1
        comm.Barrier()
        values = np.arange(60, dtype="i4").reshape(6, 10) + comm.rank
        old = np.full((30, 2), -7, "i4")
        with win.lock(right):
            win.accumulate(values[::-1, ::2], right, 0)
            win.get_accumulate(values[::-1, 1::2], old[::-1, 1], right, 0, op="max")
        wanted = values[::-1, ::2] + 1
        assert_equal(old[::-1, 1].reshape(6, 5), wanted, "result")
        assert (old[:, 0] == -7).all()
        comm.Barrier()
        theirs = np.arange(60, dtype="i4").reshape(6, 10) + left
        wanted = np.maximum(theirs[::-1, ::2] + 1, theirs[::-1, 1::2])
        assert_equal(win.local, wanted, "target")


def test_origin_and_result_of_a_get_accumulate_may_be_the_same_memory(make, comm):
    right, left = neighbours(comm)
    with make(COUNT, "i8") as win:
        win.local[:] = 1000 + comm.rank
        comm.Barrier()
        values = np.arange(COUNT) + comm.rank
        with win.lock(right):
            win.get_accumulate(values, values, right, 0)
            win.flush(right)
        assert (values == 1000 + right).all()
        comm.Barrier()
        assert_equal(win.local, np.arange(COUNT) + left + 1000 + comm.rank, "target")


def test_the_window_itself_may_be_the_origin_of_an_accumulate(make, comm):
    with make(2 * COUNT, "i8") as win:
        win.local[:COUNT] = np.arange(COUNT)
        win.local[COUNT:] = 5
        with win.lock(comm.rank):
            win.accumulate(win.local[:COUNT], comm.rank, COUNT)
        assert_equal(win.local[COUNT:], np.arange(COUNT) + 5, "target")
        comm.Barrier()


def test_accumulates_of_one_origin_keep_their_order(make, comm):
    right, left = neighbours(comm)
    with make(COUNT, "i8") as win:
        win.local[:] = 0
        comm.Barrier()
        old = np.zeros((40, COUNT), "i8")
        with win.lock(right, exclusive=False):
            for number in range(1, 40):
                win.accumulate(np.full(COUNT, number + comm.rank), right, 0, op="replace")
                win.accumulate(np.ones(1, "i8"), right, number, op="sum")
                win.get_accumulate(np.zeros(COUNT, "i8"), old[number], right, 0, op="no_op")
                win.accumulate(np.full(3, 2), right, number, op="prod")
        for number in range(1, 40):
            assert old[number, number] == number + comm.rank + 1
            assert np.count_nonzero(old[number] == number + comm.rank) == COUNT - 1
        comm.Barrier()
        wanted = np.full(COUNT, 39 + left)
        wanted[39] += 1
        wanted[39:42] *= 2
        assert_equal(win.local, wanted, "target")


def test_no_op_leaves_the_target_alone(make, comm):
    right, _ = neighbours(comm)
    with make(64) as win:
        raw(win)[:] = pattern(comm.rank, 64)
        comm.Barrier()
        with win.lock(right):
            win.accumulate(np.full(8, -1.0), right, 0, op="no_op")
        comm.Barrier()
        assert_bytes(raw(win), pattern(comm.rank, 64))


@pytest.mark.parametrize("code", "edgFDG")
def test_an_operation_that_has_no_meaning_for_the_type_is_a_type_error(make, comm, code):
    right, _ = neighbours(comm)
    refused = [op for op in OPERATIONS if op not in operations_of(code)]
    with make(64) as win:
        raw(win)[:] = 7
        comm.Barrier()
        one, old = np.ones(1, code), np.zeros(1, code)
        with win.lock(right):
            for op in refused:
                with pytest.raises(rma.ArgumentTypeError) as caught:
                    win.accumulate(one, right, 0, op=op)
                assert op in str(caught.value)
                with pytest.raises(rma.ArgumentTypeError):
                    win.get_accumulate(one, old, right, 0, op=op)
                with pytest.raises(rma.ArgumentTypeError):
                    win.fetch_and_op(one, old, right, 0, op=op)
            with pytest.raises(rma.ArgumentTypeError):
                win.compare_and_swap(one, one, old, right, 0)
        comm.Barrier()
        assert (raw(win) == 7).all()
        assert (old == 0).all()


@pytest.mark.parametrize("op", ["add", "", "SUM", "sum "])
def test_an_unknown_operation_is_an_argument_error(make, comm, op):
    right, _ = neighbours(comm)
    with make(8, "i8") as win:
        comm.Barrier()
        with win.lock(right), pytest.raises(rma.ArgumentError) as caught:
            win.accumulate(np.ones(1, "i8"), right, 0, op=op)
        assert repr(op) in str(caught.value)
        comm.Barrier()


@pytest.mark.parametrize("op", [None, 3, np.add, True, b"sum"], ids=str)
def test_an_operation_that_is_no_text_is_a_type_error(make, comm, op):
    right, _ = neighbours(comm)
    with make(8, "i8") as win:
        comm.Barrier()
        with win.lock(right), pytest.raises(rma.ArgumentTypeError):
            win.accumulate(np.ones(1, "i8"), right, 0, op=op)
        comm.Barrier()


@pytest.mark.parametrize(
    "values",
    [
        np.zeros(2, [("a", "i4"), ("b", "f4")]),
        np.zeros(2, "S4"),
        np.zeros(2, "V8"),
        np.zeros(2, ">i4"),
        np.zeros(2, "M8[s]"),
    ],
    ids=["structured", "text", "void", "other byte order", "dates"],
)
def test_elements_that_are_no_native_numbers_are_not_accumulated(make, comm, values):
    right, _ = neighbours(comm)
    with make(64) as win:
        raw(win)[:] = 7
        comm.Barrier()
        with win.lock(right), pytest.raises(rma.ArgumentTypeError):
            win.accumulate(values, right, 0)
        comm.Barrier()
        assert (raw(win) == 7).all()
