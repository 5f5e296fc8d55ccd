# SPDX-License-Identifier: Apache-2.0
"""Ranges, ranks and numbers that cannot be: typed errors, no byte moved, the window works on."""

import numpy as np
import pytest

import hixl_rma as rma
from support.windows import assert_bytes, assert_usable, neighbours, pattern, raw

pytestmark = pytest.mark.mpi

SIZE = 64  # bytes of the window, in units of 8
UNITS = SIZE // 8
TOP = 1 << 64


@pytest.fixture
def win(make, comm):
    """A window of known bytes; the test must leave them as they are and the window usable."""
    with make(UNITS, "i8", disp_unit=8) as window:
        raw(window)[:] = pattern(comm.rank, SIZE)
        comm.Barrier()
        yield window
        comm.Barrier()
        assert_bytes(raw(window), pattern(comm.rank, SIZE), "memory after the error")
        assert window.test_notify() is None
        assert_usable(window, comm)


class Buffers:
    """Origins of so many bytes; a refused call must not have written to them."""

    def __init__(self, nbytes):
        self.bytes = np.full(nbytes, 0xEE, "u1")
        self.one, self.old = np.array([1], "i8"), np.array([2], "i8")
        whole = self.bytes[: nbytes // 8 * 8]
        self.values, self.result = whole.view("i8"), whole.copy().view("i8")

    def check(self):
        assert (self.bytes == 0xEE).all()
        assert (self.result.view("u1") == 0xEE).all()
        assert (self.one[0], self.old[0]) == (1, 2)


def movers(win, buffers):
    """The calls that take any number of bytes: call(target, disp)."""
    b = buffers
    return {
        "put": lambda t, d: win.put(b.bytes, t, d),
        "get": lambda t, d: win.get(b.bytes, t, d),
        "put_v": lambda t, d: win.put_v([(b.bytes[:0], 0), (b.bytes, d)], t),
        "get_v": lambda t, d: win.get_v([(b.bytes[:0], 0), (b.bytes, d)], t),
        "accumulate": lambda t, d: win.accumulate(b.values, t, d),
        "get_accumulate": lambda t, d: win.get_accumulate(b.values, b.result, t, d),
        "rput": lambda t, d: win.rput(b.bytes, t, d),
        "rget": lambda t, d: win.rget(b.bytes, t, d),
        "raccumulate": lambda t, d: win.raccumulate(b.values, t, d),
        "rget_accumulate": lambda t, d: win.rget_accumulate(b.values, b.result, t, d),
        "put_notify": lambda t, d: win.put_notify(b.bytes, t, d, notification=1),
        "rput_notify": lambda t, d: win.rput_notify(b.bytes, t, d, notification=1),
        "put_notify_v": lambda t, d: win.put_notify_v([(b.bytes, d)], t, notification=1),
        "get_notify": lambda t, d: win.get_notify(b.bytes, t, d, notification=1),
    }


def singles(win, buffers):
    """The calls that take one element."""
    b = buffers
    return {
        "fetch_and_op": lambda t, d: win.fetch_and_op(b.one, b.old, t, d),
        "compare_and_swap": lambda t, d: win.compare_and_swap(b.one, b.one, b.old, t, d),
    }


def refused(calls, expected, target, disp):
    for name, call in calls.items():
        with pytest.raises(expected) as caught:
            call(target, disp)
        assert type(caught.value) is expected, f"{name}: {caught.value!r}"
        yield name, str(caught.value)


# (displacement in units of 8 bytes, bytes): what lies outside a window of 64 bytes
OUTSIDE = [
    (UNITS, 8),
    (UNITS + 1, 0),
    (UNITS + 1, 8),
    (UNITS - 1, 16),
    (0, SIZE + 8),
    (1, SIZE),
    (-1, 8),
    (-1, 0),
    (-UNITS, SIZE),
    (1 << 20, 8),
    (1 << 40, 8),
    ((1 << 61) - 1, 8),
    (1 << 61, 8),  # times the unit: 0 modulo 2^64
    ((1 << 61) + 1, 8),
    ((1 << 63) - 1, 8),
    (1 << 63, 8),
    (TOP - 8, 16),
    (TOP - 1, 8),
    (TOP, 8),
    (-(1 << 63), 8),
    (-(1 << 63) - 1, 8),
    (1 << 70, 8),
    (-(1 << 70), 8),
]


@pytest.mark.parametrize(("disp", "nbytes"), OUTSIDE)
def test_a_range_outside_the_window_is_a_range_error_that_names_it(win, comm, disp, nbytes):
    right, _ = neighbours(comm)
    buffers = Buffers(nbytes)
    calls = movers(win, buffers) | (singles(win, buffers) if nbytes == 8 else {})
    with win.lock(right):
        for name, text in refused(calls, rma.RangeError, right, disp):
            assert name.removeprefix("r") in text
            assert str(disp) in text
            assert str(right) in text
            if abs(disp) < 1 << 40:
                assert str(SIZE) in text, "the size of the target is not named"
    buffers.check()


@pytest.mark.parametrize(("disp", "nbytes"), [(UNITS, 0), (0, SIZE), (UNITS - 1, 8), (0, 0)])
def test_a_range_that_just_fits_is_accepted(win, comm, disp, nbytes):
    right, _ = neighbours(comm)
    result = np.zeros(nbytes, "u1")
    with win.lock(right):
        win.get(result, right, disp)
        win.flush(right)
        win.put(result, right, disp)  # what was there before
        win.get_v([(result, disp)], right)
    assert_bytes(result, pattern(right, SIZE)[8 * disp : 8 * disp + nbytes])


def test_a_single_byte_too_many_is_a_range_error(win, comm):
    right, _ = neighbours(comm)
    with win.lock(right):
        for nbytes in (SIZE + 1, SIZE + 7, 4096):
            for verb in (win.put, win.get):
                with pytest.raises(rma.RangeError) as caught:
                    verb(np.zeros(nbytes, "u1"), right, 0)
                assert str(nbytes) in str(caught.value)


BAD_RANKS = [
    (-1, rma.RangeError),
    (-2, rma.RangeError),
    (1000, rma.RangeError),
    (1 << 31, rma.RangeError),
    (1 << 32, rma.RangeError),  # 0 in 32 bits
    (1 << 64, rma.RangeError),
    (-(1 << 70), rma.RangeError),
    (0.0, rma.ArgumentTypeError),
    (np.float64(0), rma.ArgumentTypeError),
    (True, rma.ArgumentTypeError),
    (np.False_, rma.ArgumentTypeError),
    ("0", rma.ArgumentTypeError),
    (None, rma.ArgumentTypeError),
    ([0], rma.ArgumentTypeError),
]


@pytest.mark.parametrize(("rank", "expected"), BAD_RANKS, ids=repr)
def test_a_bad_rank_is_a_typed_error(win, comm, rank, expected):
    rank = comm.size if rank == 1000 else rank
    buffers = Buffers(8)
    with win.lock_all():
        calls = movers(win, buffers) | singles(win, buffers)
        calls["notify"] = lambda t, _: win.notify(t, notification=1)
        calls["flush"] = lambda t, _: win.flush(t)
        calls["flush_local"] = lambda t, _: win.flush_local(t)
        for _, text in refused(calls, expected, rank, 0):
            assert expected is rma.ArgumentTypeError or str(rank) in text
    for call in (lambda: win.lock(rank), lambda: win.unlock(rank), lambda: win.remote(rank)):
        with pytest.raises(expected):
            call()
    buffers.check()


BAD_DISPLACEMENTS = [0.0, 1.5, np.float64(0), True, np.True_, "0", b"0", None, {}, [0], 1j]


@pytest.mark.parametrize("disp", BAD_DISPLACEMENTS, ids=repr)
def test_a_displacement_of_a_wrong_type_is_a_type_error(win, comm, disp):
    right, _ = neighbours(comm)
    buffers = Buffers(8)
    with win.lock(right):
        calls = movers(win, buffers) | singles(win, buffers)
        for name, text in refused(calls, rma.ArgumentTypeError, right, disp):
            assert type(disp).__name__ in text, f"{name}: {text}"
    buffers.check()


class Index:
    """A number by the protocol of numbers, as those of other libraries."""

    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


@pytest.mark.parametrize("of", [np.int8, np.int64, np.uint64, Index], ids=lambda of: of.__name__)
def test_numbers_of_other_libraries_are_numbers(win, comm, of):
    right, _ = neighbours(comm)
    result = np.zeros(8, "u1")
    with win.lock(of(right)):
        win.get(result, of(right), of(3))
        win.get_v([(result, of(3))], of(right))
        win.flush(of(right))
    assert_bytes(result, pattern(right, SIZE)[24:32])


def test_an_index_that_raises_passes_its_error_on(win, comm):
    class Broken:
        def __index__(self):
            message = "broken"
            raise LookupError(message)

    right, _ = neighbours(comm)
    with win.lock(right), pytest.raises(LookupError, match="broken"):
        win.put(np.zeros(8, "u1"), right, Broken())


def test_missing_and_unknown_arguments_are_type_errors(win, comm):
    right, _ = neighbours(comm)
    origin = np.zeros(8, "u1")
    with win.lock(right):
        for call in (
            lambda: win.put(),
            lambda: win.put(origin),
            lambda: win.put(origin, right, 0, 0),
            lambda: win.put(origin, right, target_disp=0, more=1),
            lambda: win.put(origin, right, 0, target_disp=0),
            lambda: win.accumulate(origin, right, 0, "sum"),
            lambda: win.flush(),
        ):
            with pytest.raises(TypeError):
                call()


def test_arguments_may_be_given_by_name(win, comm):
    right, _ = neighbours(comm)
    result = np.zeros(8, "u1")
    with win.lock(rank=right, exclusive=False):
        win.get(origin=result, target_rank=right, target_disp=2)
        win.get(result, right, target_disp=2)
        win.get_v(ops=[(result, 2)], target_rank=right)
        win.flush(rank=right)
    assert_bytes(result, pattern(right, SIZE)[16:24])


def test_errors_carry_what_is_known(win, comm):
    right, _ = neighbours(comm)
    with win.lock(right), pytest.raises(rma.RangeError) as caught:
        win.put(np.zeros(8, "u1"), right, UNITS)
    assert caught.value.code == "OutOfRange"
    assert caught.value.operation == "put"
    assert caught.value.peer_rank == right


def test_hundreds_of_errors_leave_nothing_behind(win, comm):
    right, _ = neighbours(comm)
    origin = bytearray(8)
    with win.lock(right):
        for _ in range(300):
            with pytest.raises(rma.RangeError):
                win.put(origin, right, UNITS)
            with pytest.raises(rma.ArgumentTypeError):
                win.put(origin, right, None)
    origin.extend(b"more")  # no export of the buffer is left
    assert len(origin) == 12
