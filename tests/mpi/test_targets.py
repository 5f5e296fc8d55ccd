# SPDX-License-Identifier: Apache-2.0
"""A target is a displacement in the target's units or a basic index of the target's shape."""

import numpy as np
import pytest

import hixl_rma as rma
from support.windows import assert_bytes, neighbours, raw

pytestmark = pytest.mark.mpi

ROWS, COLUMNS = 7, 10

INDICES = {
    "one column": np.s_[:, 3],
    "last column": np.s_[..., -1],
    "one row": np.s_[2, :],
    "one row by a tuple": (2,),
    "last row": (-1,),
    "one element": np.s_[4, 5],
    "block": np.s_[1:4, 2:9],
    "steps": np.s_[::2, 1::3],
    "backwards": np.s_[::-1, ::-1],
    "backwards with steps": np.s_[6:0:-2, 8::-3],
    "everything": np.s_[...],
    "all rows": np.s_[:],
    "some rows": np.s_[1:3],
    "new axis": np.s_[None, 2:4, None, ::4],
    "nothing": np.s_[3:3, :],
    "cut at the end": np.s_[5:100, 7:100],
}


def grid(seed):
    return (np.arange(ROWS * COLUMNS, dtype="i4") + 1000 * (seed + 1)).reshape(ROWS, COLUMNS)


@pytest.mark.parametrize("case", INDICES)
def test_a_basic_index_selects_the_elements_numpy_selects(make, comm, case):
    index = INDICES[case]
    right, left = neighbours(comm)
    with make((ROWS, COLUMNS), "i4") as win:
        win.local[:] = -1
        comm.Barrier()
        values = grid(comm.rank)[index]
        with win.lock(right):
            win.put(values, right, index)
            win.flush(right)
            back = np.zeros(values.shape, "i4")
            win.get(back, right, index)
        assert_bytes(back, values, "get")
        comm.Barrier()
        expected = np.full((ROWS, COLUMNS), -1, "i4")
        expected[index] = grid(left)[index]
        assert_bytes(win.local, expected, "put")
        comm.Barrier()
        with win.lock(right):
            old = np.zeros(values.shape, "i4")
            win.accumulate(values, right, index, op="sum")
            win.get_accumulate(values, old, right, index, op="sum")
        assert_bytes(old, 2 * values, "get_accumulate")
        comm.Barrier()
        expected[index] *= 3
        assert_bytes(win.local, expected, "accumulate")


def test_origin_and_target_may_be_strided_with_different_shapes_of_equal_size(make, comm):
    right, left = neighbours(comm)
    with make((ROWS, COLUMNS), "i4") as win:
        win.local[:] = 0
        comm.Barrier()
        with win.lock(right):
            win.put(grid(comm.rank)[::-2, 4], right, np.s_[1:3, ::5])  # 4 elements to 2 x 2
            win.put(grid(comm.rank).T[:6, 1:3], right, np.s_[3:5, 2:8])  # 6 x 2 to 2 x 6
        comm.Barrier()
        expected = np.zeros((ROWS, COLUMNS), "i4")
        expected[1:3, ::5] = grid(left)[::-2, 4].reshape(2, 2)
        expected[3:5, 2:8] = grid(left).T[:6, 1:3].reshape(2, 6)
        assert_bytes(win.local, expected)


def test_the_index_is_one_of_the_shape_of_the_target(make, comm):
    right, left = neighbours(comm)
    with make((comm.rank + 2, 4), "u2") as win:
        win.local[:] = 0
        comm.Barrier()
        with win.lock(right):
            win.put(np.full(4, comm.rank + 1, "u2"), right, (-1,))
            with pytest.raises(rma.RangeError):
                win.put(np.zeros(4, "u2"), right, (right + 2,))
        comm.Barrier()
        assert (win.local[-1] == left + 1).all()
        assert (win.local[:-1] == 0).all()


def test_an_index_works_for_bytes_of_another_type_of_equal_length(make, comm):
    right, left = neighbours(comm)
    with make((4, 6), "f4") as win:
        win.local[:] = 0
        comm.Barrier()
        values = np.full(4, comm.rank + 1, "i4")
        with win.lock(right):
            win.put(values, right, np.s_[:, 2])
        comm.Barrier()
        assert (win.local[:, 2].copy().view("i4") == left + 1).all()
        assert np.count_nonzero(win.local) == 4


BAD_INDICES = {
    "row beyond the end": ((7,), rma.RangeError),
    "row before the start": ((-8,), rma.RangeError),
    "column beyond the end": (np.s_[:, 10], rma.RangeError),
    "too many axes": (np.s_[0, 0, 0], rma.RangeError),
    "two ellipses": ((..., ...), rma.RangeError),
    "list": ([0, 1], rma.ArgumentTypeError),
    "array": (np.array([0, 1]), rma.ArgumentTypeError),
    "mask": (np.ones((7, 10), bool), rma.ArgumentTypeError),
    "list in a tuple": (([0, 1], 2), rma.ArgumentTypeError),
    "bool in a tuple": ((True, 2), rma.ArgumentTypeError),
    "float in a tuple": ((1.0, 2), rma.ArgumentTypeError),
    "text in a tuple": (("a", 2), rma.ArgumentTypeError),
    "step of zero": (np.s_[::0], rma.ArgumentError),
    "too many elements": (np.s_[:3, 0], rma.ArgumentError),
    "too few elements": (np.s_[:, 0:2], rma.ArgumentError),
}


@pytest.mark.parametrize("case", BAD_INDICES)
def test_a_bad_index_is_a_typed_error_and_moves_nothing(make, comm, case):
    index, expected = BAD_INDICES[case]
    right, _ = neighbours(comm)
    with make((ROWS, COLUMNS), "i4") as win:
        win.local[:] = grid(comm.rank)
        comm.Barrier()
        with win.lock(right):
            for verb in (win.put, win.get, win.accumulate, win.rput, win.rget):
                origin = np.full(7, 99, "i4")
                with pytest.raises(expected) as caught:
                    verb(origin, right, index)
                assert type(caught.value) is expected
                assert (origin == 99).all()
        comm.Barrier()
        assert_bytes(raw(win), grid(comm.rank))
