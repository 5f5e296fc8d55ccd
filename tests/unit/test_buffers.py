# SPDX-License-Identifier: Apache-2.0
"""Buffers: the same memory with the same shape and strides, or a typed error; never a copy."""

import array
import ctypes
import mmap
import types

import numpy as np
import pytest

from hixl_rma.buffers import as_buffer
from hixl_rma.errors import (
    ArgumentTypeError,
    ReadOnlyBufferError,
    UnsupportedError,
)


def address(obj):
    return np.asarray(obj).ctypes.data


class Exporter:
    """An object with DLPack, of 1.0 or older, on a device of choice."""

    def __init__(self, source, device=(1, 0), fails=None):
        self.source, self.device, self.fails = source, device, fails

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **options):
        if self.fails:
            raise self.fails
        return self.source.__dlpack__(**options)


class OldExporter(Exporter):
    def __dlpack__(self, stream=None):
        return self.source.__dlpack__()


def with_interface(interface):
    return types.SimpleNamespace(__array_interface__=interface)


# -- numpy types without a name in the buffer protocol ------------------------------------------


@pytest.mark.parametrize("dtype", ["M8[s]", "m8[us]", [("when", "M8[D]"), ("what", "i4")]])
@pytest.mark.parametrize("writable", [False, True])
def test_a_numpy_type_unknown_to_the_buffer_protocol_becomes_raw_bytes(dtype, writable):
    source = np.zeros((4, 6), dtype)[::2, ::-1]
    with pytest.raises(ValueError, match="buffer"):
        memoryview(source)
    view = memoryview(as_buffer(source, writable=writable))
    assert (view.shape, view.strides, view.itemsize) == (
        source.shape,
        source.strides,
        source.itemsize,
    )
    assert address(as_buffer(source, writable=writable)) == address(source)


def test_writing_through_the_view_writes_the_array():
    source = np.zeros(3, "M8[s]")
    as_buffer(source, writable=True).view("i8")[:] = [1, 2, 3]
    assert source.view("i8").tolist() == [1, 2, 3]


def test_a_zero_dimensional_array_keeps_its_shape():
    assert as_buffer(np.array("2000-01-01", "M8[D]"), writable=False).shape == ()


def test_bfloat16_of_ml_dtypes_becomes_raw_bytes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    source = np.ones((3, 5), ml_dtypes.bfloat16).T
    found = as_buffer(source, writable=True)
    assert (found.itemsize, found.shape, found.strides) == (2, source.shape, source.strides)
    assert address(found) == address(source)


def test_a_read_only_array_may_be_read_and_not_written():
    source = np.zeros(3, "M8[s]")
    source.flags.writeable = False
    assert as_buffer(source, writable=False).shape == (3,)
    with pytest.raises(ReadOnlyBufferError, match="read-only"):
        as_buffer(source, writable=True)


@pytest.mark.parametrize("dtype", ["O", [("a", "O"), ("b", "i4")], "T"])
def test_an_array_of_python_objects_is_refused(dtype):
    try:
        source = np.zeros(2, dtype)
    except TypeError:
        source = np.zeros(2, "O")  # numpy < 2 has no variable-width strings
    with pytest.raises(ArgumentTypeError, match="Python objects"):
        as_buffer(source, writable=False)


def test_a_field_whose_name_has_a_capital_o_is_no_python_object():
    source = np.zeros(2, [("Offset", "i4")])
    assert as_buffer(memoryview(source), writable=True).nbytes == 8


# -- the buffer protocol itself -----------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [bytearray(8), array.array("d", [1.0]), mmap.mmap(-1, 4096), (ctypes.c_double * 4)()],
    ids=lambda source: type(source).__name__,
)
def test_an_object_with_a_buffer_is_taken_as_it_is(source):
    assert as_buffer(source, writable=True).nbytes == memoryview(source).nbytes


@pytest.mark.parametrize(
    "source", [b"abc", memoryview(b"abc"), memoryview(bytearray(3)).toreadonly()]
)
def test_a_read_only_buffer_may_be_read_and_not_written(source):
    assert as_buffer(source, writable=False).nbytes == 3
    with pytest.raises(ReadOnlyBufferError, match="read-only"):
        as_buffer(source, writable=True)


def test_the_view_keeps_its_owner_alive():
    view = as_buffer(bytearray(b"still here"), writable=False)
    assert bytes(view) == b"still here"


# -- DLPack -------------------------------------------------------------------------------------


@pytest.mark.parametrize("exporter", [Exporter, OldExporter])
def test_a_dlpack_object_on_the_host_shares_its_memory(exporter):
    source = np.arange(12.0).reshape(3, 4)[:, ::2]
    found = as_buffer(exporter(source), writable=False)
    assert (address(found), found.strides) == (address(source), source.strides)


def test_a_dlpack_object_that_says_it_is_writable_is_written():
    source = np.zeros(3)
    found = as_buffer(Exporter(source), writable=True)
    found[:] = 7
    assert source.tolist() == [7, 7, 7]


def test_a_dlpack_object_that_does_not_say_it_is_writable_is_not_written():
    with pytest.raises(ReadOnlyBufferError, match="does not say otherwise"):
        as_buffer(OldExporter(np.zeros(3)), writable=True)


@pytest.mark.parametrize("device", [(2, 0), (12, 1), (10, 3)])
def test_a_dlpack_object_on_a_device_is_refused_with_its_number(device):
    with pytest.raises(UnsupportedError, match=f"device {device[0]}:{device[1]}"):
        as_buffer(Exporter(np.zeros(3), device), writable=False)


def test_a_dlpack_export_that_fails_is_an_argument_error_with_its_reason():
    with pytest.raises(ArgumentTypeError, match="not today"):
        as_buffer(Exporter(np.zeros(3), fails=BufferError("not today")), writable=False)


def test_a_dlpack_object_without_a_device_is_refused():
    half = types.SimpleNamespace(__dlpack__=lambda **_: None)
    with pytest.raises(ArgumentTypeError, match="does not name its device"):
        as_buffer(half, writable=False)


# -- array interfaces ---------------------------------------------------------------------------


def test_an_array_interface_shares_its_memory():
    source = np.arange(10, dtype="i4")[::3]
    found = as_buffer(with_interface(source.__array_interface__), writable=True)
    assert (address(found), found.shape, found.strides) == (
        address(source),
        source.shape,
        source.strides,
    )


def test_the_view_of_an_array_interface_keeps_the_object_alive():
    class Owner:
        pass

    owner = Owner()
    owner.source = np.zeros(4)
    owner.__array_interface__ = owner.source.__array_interface__
    found = as_buffer(owner, writable=True)
    base = found
    while isinstance(base, np.ndarray):
        base = base.base
    assert base.owner is owner


def test_a_read_only_array_interface_is_not_written():
    source = np.zeros(3)
    source.flags.writeable = False
    with pytest.raises(ReadOnlyBufferError):
        as_buffer(with_interface(source.__array_interface__), writable=True)


@pytest.mark.parametrize(
    "interface",
    [
        7,
        {},
        {"version": 3},
        {"version": 3, "shape": (3,), "typestr": "<i4"},
        {"version": 3, "shape": (-3,), "typestr": "<i4", "data": (4096, False)},
        {"version": 3, "shape": (1 << 62,), "typestr": "<f8", "data": (4096, False)},
        {"version": 3, "shape": (3,), "typestr": "nonsense", "data": (4096, False)},
    ],
)
def test_an_array_interface_that_makes_no_sense_is_refused(interface):
    with pytest.raises(ArgumentTypeError):
        as_buffer(with_interface(interface), writable=False)


def test_a_cuda_array_interface_is_refused_as_device_memory():
    device = types.SimpleNamespace(
        __cuda_array_interface__={"shape": (1,), "typestr": "<f4", "data": (1, 0)}
    )
    with pytest.raises(
        UnsupportedError, match=r"device memory \(CUDA\).*this build does not support"
    ):
        as_buffer(device, writable=False)


# -- what is no memory at all -------------------------------------------------------------------


@pytest.mark.parametrize(
    "source", [None, 1, 1.5, "text", [1, 2], (1,), range(3), {}, object(), np.ndarray]
)
def test_an_object_without_a_buffer_is_refused(source):
    with pytest.raises(ArgumentTypeError, match="has no buffer: pass"):
        as_buffer(source, writable=False)


def test_an_object_that_could_only_be_copied_is_refused():
    copier = types.SimpleNamespace(__array__=lambda *_: np.zeros(3))
    with pytest.raises(ArgumentTypeError, match=r"pass numpy.asarray\(...\) of it"):
        as_buffer(copier, writable=False)


def test_an_object_whose_attributes_raise_is_refused():
    class Hostile:
        def __getattr__(self, name):
            raise RuntimeError(name)

    with pytest.raises(ArgumentTypeError, match="Hostile has no buffer"):
        as_buffer(Hostile(), writable=False)
