# SPDX-License-Identifier: Apache-2.0
"""An origin buffer may have any shape, stride, type and owner that Python can export."""

import array
import ctypes
import gc
import mmap

import numpy as np
import pytest

import hixl_rma as rma
from support.windows import assert_bytes, neighbours, pattern, raw

pytestmark = pytest.mark.mpi

POINT = np.dtype([("x", "f8"), ("tag", "i2"), ("y", "f4")], align=True)
WINDOW = 8192


def numbers(seed, *shape, dtype="i4"):
    count = int(np.prod(shape))
    return (np.arange(count) * 3 + seed + 1).astype(dtype).reshape(shape)


def points(seed, count):
    result = np.zeros(count, POINT)
    result["x"] = np.arange(count) + seed
    result["tag"] = seed
    result["y"] = -np.arange(count)
    return result


SHAPES = {
    "contiguous": lambda s: numbers(s, 50),
    "two axes": lambda s: numbers(s, 6, 7),
    "every second": lambda s: numbers(s, 50)[::2],
    "reversed": lambda s: numbers(s, 50)[::-1],
    "every third backwards": lambda s: numbers(s, 50)[-2::-3],
    "columns": lambda s: numbers(s, 8, 9)[:, ::2],
    "one column": lambda s: numbers(s, 8, 9)[:, 3],
    "inner block": lambda s: numbers(s, 8, 9)[2:5, 3:7],
    "both axes backwards": lambda s: numbers(s, 8, 9)[::-1, ::-2],
    "transposed": lambda s: numbers(s, 6, 7).T,
    "three axes turned": lambda s: numbers(s, 4, 5, 6).transpose(2, 0, 1),
    "three axes cut": lambda s: numbers(s, 4, 5, 6)[1:, ::2, ::-1],
    "seven axes": lambda s: numbers(s, 2, 2, 2, 2, 2, 2, 2)[..., ::-1],
    "Fortran order": lambda s: np.asfortranarray(numbers(s, 6, 7)),
    "Fortran order cut": lambda s: np.asfortranarray(numbers(s, 6, 7))[1::2],
    "no axis": lambda s: np.array(s + 5, "i8"),
    "no element": lambda s: np.empty((0,), "f8") if s >= 0 else None,
    "no element in two axes": lambda s: np.empty((3, 0, 2), "f8") if s >= 0 else None,
    "axes of one": lambda s: numbers(s, 1, 5, 1)[:, ::2],
    "bytes": lambda s: numbers(s, 33, dtype="u1"),
    "bool": lambda s: numbers(s, 33) % 2 == 0,
    "half floats": lambda s: numbers(s, 33, dtype="f2"),
    "complex": lambda s: numbers(s, 33, dtype="c16") * (1 + 2j),
    "long double": lambda s: numbers(s, 9, dtype="u1").repeat(16)[:16].view(np.longdouble),
    "structured": lambda s: points(s, 7),
    "structured every second": lambda s: points(s, 7)[::2],
    "one field": lambda s: points(s, 7)["y"],
    "big endian": lambda s: numbers(s, 20).astype(">i4"),
}

EXPORTERS = {
    "bytearray": lambda s: bytearray(range(s, s + 40)),
    "memoryview": lambda s: memoryview(bytearray(range(s, s + 40))),
    "memoryview with steps": lambda s: memoryview(bytearray(range(s, s + 40)))[::3],
    "memoryview backwards": lambda s: memoryview(bytearray(range(s, s + 40)))[::-1],
    "memoryview of shape": lambda s: memoryview(bytearray(range(s, s + 40))).cast("B", (5, 8)),
    "array": lambda s: array.array("d", [s + 0.5, 2.0, 3.0]),
    "ctypes": lambda s: (ctypes.c_int * 6)(*range(s, s + 6)),
    "mapping": lambda s: mapped(s),
}

READ_ONLY = {
    "bytes": lambda s: bytes(range(s, s + 40)),
    "read-only array": lambda s: frozen(numbers(s, 20)),
    "read-only view of strides": lambda s: frozen(numbers(s, 20))[::-2],
    "read-only memoryview": lambda s: memoryview(bytes(range(s, s + 40))),
    "broadcast": lambda s: np.broadcast_to(numbers(s, 5), (4, 5)),
    "read-only mapping": lambda _: mmap.mmap(-1, 4096, prot=mmap.PROT_READ),
    "numpy scalar": lambda s: np.float64(s + 0.25),
}


def frozen(values):
    values.flags.writeable = False
    return values


def mapped(seed):
    result = mmap.mmap(-1, 4096)
    result[:] = pattern(seed, 4096).tobytes()
    return result


def content(origin):
    """Return the elements in the order of their indices, as bytes."""
    return np.frombuffer(memoryview(origin).tobytes(), "u1")


@pytest.mark.parametrize("case", [*SHAPES, *EXPORTERS, *READ_ONLY])
def test_a_put_moves_the_elements_in_the_order_of_their_indices(make, comm, case):
    factory = {**SHAPES, **EXPORTERS, **READ_ONLY}[case]
    right, left = neighbours(comm)
    with make(WINDOW) as win:
        raw(win)[:] = 0x5A
        comm.Barrier()
        with win.lock(right):
            win.put(factory(comm.rank), right, 8)
        comm.Barrier()
        theirs = content(factory(left))
        expected = np.full(WINDOW, 0x5A, "u1")
        expected[8 : 8 + theirs.size] = theirs
        assert_bytes(raw(win), expected, case)


@pytest.mark.parametrize("case", [*SHAPES, *EXPORTERS])
def test_a_get_fills_the_elements_in_the_order_of_their_indices(make, comm, case):
    factory = {**SHAPES, **EXPORTERS}[case]
    right, _ = neighbours(comm)
    with make(WINDOW) as win:
        theirs = content(factory(right))
        raw(win)[8 : 8 + theirs.size] = content(factory(comm.rank))
        comm.Barrier()
        result = factory(comm.rank + 17)
        with win.lock(right, exclusive=False):
            win.get(result, right, 8)
            win.flush(right)
        assert_bytes(content(result), theirs, case)
        comm.Barrier()


def test_a_get_with_strides_leaves_the_elements_between_alone(make, comm):
    right, _ = neighbours(comm)
    with make(64, "i4") as win:
        win.local[:] = np.arange(64) + 1000 * comm.rank
        comm.Barrier()
        memory = np.full((9, 10), -1, "i4")
        expected = memory.copy()
        with win.lock(right, exclusive=False):
            win.get(memory[1:8:2, 8:1:-3], right, 2)
        theirs = np.arange(64, dtype="i4") + 1000 * right
        expected[1:8:2, 8:1:-3] = theirs[2:14].reshape(4, 3)
        assert_bytes(memory, expected)
        comm.Barrier()


@pytest.mark.parametrize("case", READ_ONLY)
def test_a_get_into_read_only_memory_is_refused_before_a_byte_moves(make, comm, case):
    right, _ = neighbours(comm)
    with make(WINDOW) as win:
        raw(win)[:] = 0xFF
        comm.Barrier()
        result = READ_ONLY[case](comm.rank)
        before = content(result).copy()
        with win.lock(right, exclusive=False):
            for verb in (win.get, win.rget):
                with pytest.raises(rma.ReadOnlyBufferError):
                    verb(result, right, 0)
            with pytest.raises(rma.ReadOnlyBufferError):
                win.get_v([(bytearray(8), 0), (result, 8)], right)
            with pytest.raises(rma.ReadOnlyBufferError):
                win.get_notify(result, right, 0, notification=1)
        assert_bytes(content(result), before, case)
        comm.Barrier()
        assert win.notify_count(1) == 0


NO_BUFFERS = {
    "nothing": None,
    "text": "text",
    "number": 3,
    "list": [1, 2, 3],
    "object array": np.array([None, "x"], dtype=object),
    "type": np.float64,
}


@pytest.mark.parametrize("case", NO_BUFFERS)
def test_what_exports_no_plain_bytes_is_a_type_error(make, comm, case):
    right, _ = neighbours(comm)
    origin = NO_BUFFERS[case]
    with make(64) as win:
        raw(win)[:] = 7
        comm.Barrier()
        with win.lock(right):
            for verb in (win.put, win.get, win.accumulate, win.rput, win.rget):
                with pytest.raises(rma.ArgumentTypeError):
                    verb(origin, right, 0)
            for vector in (win.put_v, win.get_v):
                with pytest.raises(rma.ArgumentTypeError):
                    vector([(origin, 0)], right)
        comm.Barrier()
        assert (raw(win) == 7).all()


def test_an_origin_may_be_deleted_while_its_request_is_outstanding(make, comm):
    right, left = neighbours(comm)
    size = 4 << 20
    with make(size) as win:
        comm.Barrier()
        with win.lock(right):
            request = win.rput(pattern(comm.rank, size), right, 0)
            gc.collect()
            np.zeros(size, "u1").fill(0xEE)  # would reuse the memory, had it been freed
            request.wait(timeout=60)
        comm.Barrier()
        assert_bytes(raw(win), pattern(left, size))


def test_a_bytearray_is_not_resized_while_its_request_is_outstanding(make, comm):
    right, left = neighbours(comm)
    size = 4 << 20
    with make(size) as win:
        comm.Barrier()
        origin = bytearray(pattern(comm.rank, size))
        with win.lock(right):
            request = win.rput(origin, right, 0)
            try:
                origin.extend(b"more")
            except BufferError:
                request.wait(timeout=60)
                request = None
                gc.collect()
                origin.extend(b"more")
            else:
                assert request.done
        assert len(origin) == size + 4
        comm.Barrier()
        assert_bytes(raw(win), pattern(left, size))
