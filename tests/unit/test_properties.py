# SPDX-License-Identifier: Apache-2.0
"""Properties of a window of one rank, searched by hypothesis and compared with numpy."""

import numpy as np
import pytest

pytest.importorskip("hypothesis")

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import hixl_rma as rma
from hixl_rma.bootstrap import LocalBootstrap
from support.reductions import assert_equal, expected, operations_of, sample
from support.windows import pattern

QUICK = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
SIZE = 70_000 + 256

shapes = hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=7)


@pytest.fixture(scope="module", params=["allocate", "create"])
def win(request):
    comm = LocalBootstrap()
    if request.param == "allocate":
        window = rma.Window.allocate(SIZE, comm=comm)
    else:
        window = rma.Window.create(np.zeros(SIZE, "u1"), comm=comm)
    with window:
        window.lock_all()
        yield window
        window.unlock_all()


@given(
    size=st.integers(0, 70_000),
    disp=st.integers(0, 255),
    shift=st.integers(0, 63),
    seed=st.integers(0, 99),
)
@QUICK
def test_a_put_and_a_get_of_any_size_are_exact(win, size, disp, shift, seed):
    memory = pattern(seed, size + 64)
    origin = memory[shift : shift + size]
    win.local[:] = 0x5A
    win.put(origin, 0, disp)
    win.flush(0)
    wanted = np.full(SIZE, 0x5A, "u1")
    wanted[disp : disp + size] = origin
    assert np.array_equal(win.local, wanted)
    back = np.full(size + 128, 0xA5, "u1")
    win.get(back[64 : 64 + size], 0, disp)
    win.flush(0)
    assert np.array_equal(back[64 : 64 + size], origin)
    assert (back[:64] == 0xA5).all()
    assert (back[64 + size :] == 0xA5).all()


boundary = st.sampled_from(
    [0, 1, 7, 8, 63, 64, 4095, 4096, SIZE - 1, SIZE, SIZE + 1]
    + [base + d for base in (2**31, 2**32, 2**63, 2**64) for d in (-8, -1, 0, 1)]
)


@given(
    disp=boundary | st.integers(-(2**70), 2**70) | st.integers(-10, SIZE + 10),
    size=st.sampled_from([0, 1, 8, 4096, SIZE]),
)
@QUICK
def test_a_range_is_accepted_exactly_if_it_lies_inside(win, disp, size):
    origin = np.zeros(size, "u1")
    inside = 0 <= disp <= SIZE and size <= SIZE - disp
    for call in (win.put, win.get):
        if inside:
            call(origin, 0, disp)
        else:
            with pytest.raises(rma.RangeError):
                call(origin, 0, disp)
    win.flush(0)


@given(data=st.data(), dtype=st.sampled_from(["u1", "i2", "f4", "c16", "S3", "f2"]), shape=shapes)
@QUICK
def test_an_origin_of_any_strides_moves_in_the_order_of_its_indices(win, data, dtype, shape):
    array = sample_of(dtype, shape)
    if data.draw(st.booleans()):
        array = np.asfortranarray(array)
    axes = data.draw(st.permutations(range(len(shape))))
    view = array.transpose(axes)
    view = view[data.draw(hnp.basic_indices(view.shape, allow_newaxis=True))]
    view = np.asarray(view) if not isinstance(view, np.ndarray) else view
    win.local[:] = 0x5A
    win.put(view, 0, 3)
    win.flush(0)
    content = np.frombuffer(view.tobytes(), "u1")
    assert np.array_equal(win.local[3 : 3 + content.size], content)
    assert (win.local[:3] == 0x5A).all()
    assert (win.local[3 + content.size :] == 0x5A).all()
    spread = np.zeros([2 * length for length in view.shape], dtype)
    other = spread[(..., *[slice(None, None, 2)] * view.ndim)]
    win.get(other, 0, 3)
    win.flush(0)
    assert other.tobytes() == view.tobytes()
    other[...] = np.zeros((), dtype)
    assert not any(spread.tobytes()), "bytes between the elements changed"


def sample_of(dtype, shape):
    content = pattern(3, int(np.prod(shape)) * np.dtype(dtype).itemsize)
    return content.view(dtype).reshape(shape)


@given(data=st.data(), shape=shapes)
@settings(max_examples=100, deadline=None)
def test_a_basic_index_selects_what_numpy_selects(data, shape):
    index = data.draw(hnp.basic_indices(shape, allow_newaxis=True, allow_ellipsis=True))
    assume(not isinstance(index, int))  # that is a displacement
    model = np.zeros(shape, "i4")
    wanted = np.arange(1, 1 + model[index].size, dtype="i4").reshape(model[index].shape)
    with rma.Window.allocate(shape, "i4", comm=LocalBootstrap()) as window, window.lock(0):
        window.local[...] = 0
        window.put(wanted, 0, index)
        back = np.zeros_like(wanted)
        window.get(back, 0, index)
        window.flush(0)
        model[index] = wanted
        assert np.array_equal(window.local, model)
        assert np.array_equal(back, wanted)


@given(
    data=st.data(),
    code=st.sampled_from("bBhHiIlLefdgFD?"),
    count=st.integers(0, 1500),
    disp=st.integers(0, 64),
    seed=st.integers(0, 999),
)
@QUICK
def test_accumulates_of_any_length_and_alignment_give_what_numpy_gives(
    win, data, code, count, disp, seed
):
    dtype = np.dtype(code)
    op = data.draw(st.sampled_from(operations_of(dtype)))
    before, values = sample(dtype, count, seed), sample(dtype, count, seed + 1)
    win.local[:] = 0x5A
    win.local[disp : disp + before.nbytes] = before.view("u1")
    win.accumulate(values, 0, disp, op=op)
    win.flush(0)
    result = win.local[disp : disp + before.nbytes].copy().view(dtype)
    assert_equal(result, expected(op, before, values), f"{op} of {dtype}")
    assert (win.local[:disp] == 0x5A).all()
    assert (win.local[disp + before.nbytes :] == 0x5A).all()


@given(
    pieces=st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 300)), max_size=60),
    as_table=st.booleans(),
)
@QUICK
def test_any_pieces_end_where_they_belong(win, pieces, as_table):
    memory = pattern(5, 4400)
    owner = np.full(SIZE, -1)
    ops, places = [], []
    for number, (start, length) in enumerate(pieces):
        disp = (start * 37 + number * 400) % (SIZE - 400)
        if (owner[disp : disp + length] >= 0).any():
            continue  # overlapping pieces may end either way
        owner[disp : disp + length] = number
        ops.append((memory[start : start + length], disp))
        places.append((start, disp, length))
    win.local[:] = 0x5A
    if as_table:
        base = memory.ctypes.data
        table = [(base + start, disp, length) for start, disp, length in places]
        win.put_v(np.array(table, "u8").reshape(-1, 3), 0)
    else:
        win.put_v(ops, 0)
    win.flush(0)
    wanted = np.full(SIZE, 0x5A, "u1")
    for start, disp, length in places:
        wanted[disp : disp + length] = memory[start : start + length]
    assert np.array_equal(win.local, wanted)
