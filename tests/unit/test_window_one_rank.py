# SPDX-License-Identifier: Apache-2.0
"""A window of one rank works without MPI."""

import copy
import gc
import inspect
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest

import hixl_rma as rma
from hixl_rma.bootstrap import LocalBootstrap
from support.reductions import TYPES, assert_equal, expected, operations_of, sample

pytestmark = pytest.mark.asan


@pytest.fixture
def comm():
    return LocalBootstrap()


@pytest.fixture(params=["allocate", "create"])
def make(request, comm):
    def factory(shape, dtype="u1", **options):
        if request.param == "allocate":
            return rma.Window.allocate(shape, dtype, comm=comm, **options)
        return rma.Window.create(np.zeros(shape, dtype), comm=comm, **options)

    return factory


def test_one_rank_reaches_itself(make):
    with make(100, "i4") as win:
        assert (win.rank, win.size, tuple(win.transports)) == (0, 1, ("self",))
        win.local[:] = 0
        with win.lock(0):
            win.put(np.arange(10, dtype="i4"), 0, 20)
            win.flush(0)
            back = np.zeros(12, "i4")
            win.get(back, 0, 19)
        assert back.tolist() == [0, *range(10), 0]


def test_a_one_rank_window_does_not_import_mpi():
    code = (
        "import sys, hixl_rma as rma\n"
        "from hixl_rma.bootstrap import LocalBootstrap\n"
        "with rma.Window.allocate(8, comm=LocalBootstrap()) as win:\n"
        "    with win.fence():\n"
        "        win.notify(0, notification=1)\n"
        "    assert win.wait_notify(1, timeout=5).count == 1\n"
        "assert 'mpi4py' not in sys.modules and 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)


def test_every_synchronisation_is_legal_on_one_rank(make):
    with make(8, "f8") as win:
        value, back = np.array([2.5]), np.zeros(1)
        with win.fence():
            win.put(value, 0, 0)
        with win.post([0]), win.start([0]):
            win.put(value, 0, 1)
        with win.lock(0, exclusive=False):
            win.put(value, 0, 2)
            win.flush_local(0)
        with win.lock_all():
            win.put(value, 0, 3)
            win.flush_all()
            win.flush_local_all()
            win.sync()
            win.get(back, 0, 3)
        assert win.local[:4].tolist() == [2.5] * 4
        assert back[0] == 2.5


@pytest.mark.parametrize("code", TYPES)
def test_every_accumulate_gives_what_numpy_gives(make, code):
    dtype = np.dtype(code)
    with make(40, dtype) as win, win.lock(0):
        for op in operations_of(dtype):
            before, values = sample(dtype, 40, seed=1), sample(dtype, 40, seed=2)
            wanted = expected(op, before, values)
            win.local[:] = before
            old = np.zeros(40, dtype)
            win.get_accumulate(values, old, 0, 0, op=op)
            win.flush(0)
            assert_equal(old, before, f"result of {op}")
            assert_equal(win.local, wanted, op)
            win.local[:] = before
            win.accumulate(values, 0, 0, op=op)
            win.flush(0)
            assert_equal(win.local, wanted, op)
            win.local[:] = before
            win.fetch_and_op(values[:1], old[:1], 0, 0, op=op)
            win.flush(0)
            assert_equal(win.local[:1], wanted[:1], op)


def test_a_shaped_window_takes_basic_indices(make):
    with make((6, 7), "i2") as win, win.lock(0):
        model = np.zeros((6, 7), "i2")
        win.local[:] = 0
        for number, index in enumerate(
            [np.s_[:, 3], np.s_[1:4, ::2], np.s_[::-1, -1], np.s_[2, 3], np.s_[...], (5,)], 1
        ):
            values = np.full(model[index].shape, number, "i2")
            win.put(values, 0, index)
            model[index] = values
        assert np.array_equal(win.local, model)


def test_thousands_of_pieces_are_one_call(make):
    count = 5000
    with make(count * 16) as win, win.lock(0):
        origin = np.random.default_rng(1).integers(0, 256, count * 8, dtype="u1")
        win.local[:] = 0
        base = origin.ctypes.data
        ops = np.array([(base + 8 * i, 16 * (count - 1 - i), 8) for i in range(count)], "u8")
        win.put_v(ops, 0)
        win.flush(0)
        wanted = np.zeros((count, 16), "u1")
        wanted[::-1, :8] = origin.reshape(count, 8)
        assert np.array_equal(win.local, wanted.ravel())
        back = np.zeros(count * 8, "u1")
        win.get_v([(back[8 * i : 8 * i + 8], 16 * (count - 1 - i)) for i in range(count)], 0)
        win.flush(0)
        assert np.array_equal(back, origin)


def test_requests_are_done_when_their_bytes_are_placed(make):
    size = 3 << 20
    with make(size) as win, win.lock_all():
        origin = np.random.default_rng(2).integers(0, 256, size, dtype="u1")
        back = np.zeros(size, "u1")
        for request in (win.rput(origin, 0, 0), win.rget(back, 0, 0)):
            request.wait(timeout=30)
            assert request.done
            assert request.test()
        assert np.array_equal(back, origin)


def test_a_range_outside_the_window_moves_nothing(make):
    with make(64) as win, win.lock(0):
        win.local[:] = 7
        for disp, nbytes in [
            (64, 1),
            (65, 0),
            (63, 2),
            (-1, 1),
            (0, 65),
            (2**63, 8),
            (2**64 - 8, 16),
        ]:
            for call in (win.put, win.get):
                origin = np.full(nbytes, 9, "u1")
                with pytest.raises(rma.RangeError):
                    call(origin, 0, disp)
                assert (origin == 9).all()
        assert (win.local == 7).all()


def test_a_hundred_windows_one_after_the_other_are_independent(make):
    for number in range(100):
        with make(64) as win:
            win.local[:] = number
            with win.lock(0):
                win.put(np.array([255 - number], "u1"), 0, 9)
            assert win.local[8:11].tolist() == [number, 255 - number, number]


def test_many_windows_live_side_by_side(make):
    windows = [make(8, "i8") for _ in range(50)]
    for number, win in enumerate(windows):
        with win.lock(0):
            win.put(np.full(8, number), 0, 0)
    for number, win in enumerate(windows):
        assert (win.local == number).all()
        win.free()


def test_a_dropped_window_warns(comm):
    windows = [rma.Window.allocate(8, comm=comm)]
    with pytest.warns(ResourceWarning):
        windows.clear()


def test_a_freed_window_does_not_warn(comm):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        win = rma.Window.allocate(8, comm=comm)
        win.free()
        del win
        gc.collect()


def test_views_outlive_the_window(make):
    win = make(1000, "f4")
    view = win.local
    view[:] = np.arange(1000)
    win.free()
    del win
    gc.collect()
    assert np.array_equal(view, np.arange(1000, dtype="f4"))
    view[:] = 1


def test_the_text_of_a_window_tells_what_it_is(make):
    with make((3, 4), "f4") as win:
        assert "Window" in repr(win)
        win.free()
        assert "Window" in repr(win)


def test_every_public_name_of_the_window_has_a_text():
    missing = [
        name
        for name in dir(rma.Window)
        if not name.startswith("_")
        and not (inspect.getdoc(getattr(rma.Window, name)) or "").strip()
    ]
    assert not missing


def test_the_window_cannot_be_copied_or_pickled(make):
    with make(8) as win:
        for call in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError):
                call(win)


def test_the_class_itself_makes_no_window():
    with pytest.raises(TypeError):
        rma.Window()
