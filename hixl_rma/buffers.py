# SPDX-License-Identifier: Apache-2.0
"""Bring the caller's memory into a form that the native engine can take.

The engine takes whatever has a buffer (PEP 3118) by itself. `as_buffer` is for the rest: torch
tensors, DLPack, numpy types that the buffer protocol cannot describe, the array interface. It
returns an object with a buffer over the *same* memory, or raises; it never copies. torch is looked
up among the loaded modules and never imported: who passes a tensor has imported it.
"""

from __future__ import annotations

import re
import sys
from typing import Any, NoReturn

import numpy as np

from hixl_rma.errors import (
    ArgumentError,
    ArgumentTypeError,
    ReadOnlyBufferError,
    UnsupportedError,
)
from hixl_rma.typing import Foreign

__all__ = ["as_buffer"]

# DLPack device types (dlpack.h) whose memory the CPU may touch: kDLCPU, kDLCUDAHost, kDLROCMHost.
_HOST_DEVICES = (1, 3, 11)
_FIELD_NAME = re.compile(r":[^:]*:")  # PEP 3118 puts the names of fields between colons
# A signed integer of the same width describes the bytes of any element type.
_TORCH_INTEGERS = {1: "int8", 2: "int16", 4: "int32", 8: "int64"}


def as_buffer(obj: object, *, writable: bool) -> memoryview | np.ndarray[Any, Any]:
    """Return an object with a buffer over the memory of `obj`.

    Parameters
    ----------
    obj : object
        A torch tensor on the CPU, a numpy array of any type without Python objects, an object with
        DLPack, with ``__array_interface__`` or with a buffer.
    writable : bool
        Whether the memory will be written.

    Returns
    -------
    memoryview or numpy.ndarray
        A view of the same memory with the same shape and strides, which keeps `obj` alive. Where
        the buffer protocol has no name for the element type (bfloat16, datetime64, ...), elements
        are raw bytes of the same size (numpy ``V2``, ``V8``, ...).

    Raises
    ------
    ArgumentTypeError
        When `obj` gives no access to its memory, or holds Python objects.
    ArgumentError
        When its memory is not what its elements say (lazily conjugated), is indirect, or must not
        be written because autograd watches it.
    ReadOnlyBufferError
        When `writable` is true and the memory is read-only.
    UnsupportedError
        When the memory is on a device, or has no strides (sparse).
    """
    torch = sys.modules.get("torch")
    tensor_type = getattr(torch, "Tensor", None)
    if isinstance(tensor_type, type) and isinstance(obj, tensor_type):
        return _checked(_from_torch(obj, torch, writable), obj, writable)
    if isinstance(obj, np.ndarray):
        return _checked(obj, obj, writable)
    if _attribute(obj, "__cuda_array_interface__") is not None:
        _refuse_device(obj, "CUDA")
    try:
        view = memoryview(obj)  # type: ignore[arg-type]
    except (TypeError, BufferError, ValueError):
        pass
    else:
        return _checked_view(view, obj, writable)
    if callable(_attribute(obj, "__dlpack__")):
        return _checked(_from_dlpack(obj), obj, writable)
    interface = _attribute(obj, "__array_interface__")
    if interface is not None:
        return _checked(_from_array_interface(obj, interface), obj, writable)
    hint = "pass numpy.asarray(...) of it" if _is_array_like(obj) else "pass a numpy array"
    msg = f"{_name(obj)} has no buffer: {hint}"
    raise ArgumentTypeError(msg)


def _name(obj: object) -> str:
    cls = type(obj)
    return cls.__name__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__name__}"


def _attribute(obj: object, name: str) -> Foreign:
    # Classes have these attributes as well (unbound), and properties may raise anything.
    if isinstance(obj, type):
        return None
    try:
        return getattr(obj, name, None)
    except Exception:
        return None


def _is_array_like(obj: object) -> bool:
    return isinstance(obj, (list, tuple, int, float, complex, range)) or callable(
        _attribute(obj, "__array__")
    )


def _refuse_device(obj: object, device: str) -> NoReturn:
    msg = (
        f"{_name(obj)} is in device memory ({device}), which this build does not support: "
        "pass a host copy"
    )
    raise UnsupportedError(msg)


def _refuse_read_only(obj: object, why: str = "") -> NoReturn:
    msg = f"the memory of this {_name(obj)} is read-only{why}"
    raise ReadOnlyBufferError(msg)


def _checked_view(view: memoryview, obj: object, writable: bool) -> memoryview:
    if view.suboffsets:
        msg = f"the memory of this {_name(obj)} is indirect (it has suboffsets)"
        raise ArgumentError(msg)
    if "O" in _FIELD_NAME.sub("", view.format):
        msg = f"{_name(obj)} holds Python objects, not bytes"
        raise ArgumentTypeError(msg)
    if writable and view.readonly:
        _refuse_read_only(obj)
    return view


def _checked(array: np.ndarray[Any, Any], obj: object, writable: bool) -> np.ndarray[Any, Any]:
    """Return `array` with a type that the buffer protocol can describe, if it may be used."""
    if array.dtype.hasobject:
        msg = f"{_name(obj)} of type {array.dtype} holds Python objects, not bytes"
        raise ArgumentTypeError(msg)
    if writable and not array.flags.writeable:
        why = "" if isinstance(obj, np.ndarray) else ", or its owner does not say otherwise"
        _refuse_read_only(obj, why)
    plain = array.view(np.ndarray)
    try:
        memoryview(plain)  # type: ignore[arg-type]
    except (TypeError, BufferError, ValueError):
        if not plain.dtype.itemsize:
            msg = f"{_name(obj)} has elements of no bytes"
            raise ArgumentTypeError(msg) from None
        return plain.view(np.dtype((np.void, plain.dtype.itemsize)))
    return plain


def _from_torch(tensor: Foreign, torch: Foreign, writable: bool) -> np.ndarray[Any, Any]:
    if tensor.device.type == "meta":
        msg = "a tensor on the meta device has no memory"
        raise UnsupportedError(msg)
    if tensor.device.type != "cpu":
        _refuse_device(tensor, str(tensor.device))
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
        msg = (
            "the tensor is sparse, nested or quantized: its elements are not at strides in one "
            "piece of memory; pass the tensors it consists of"
        )
        raise UnsupportedError(msg)
    if tensor.is_conj() or tensor.is_neg():
        msg = (
            "the tensor is a lazily conjugated or negated view: its memory holds other values "
            "than it shows; call resolve_conj() or resolve_neg() first"
        )
        raise ArgumentError(msg)
    if tensor.requires_grad:
        if writable:
            msg = "the tensor requires grad: autograd would not see the write; pass tensor.detach()"
            raise ArgumentError(msg)
        tensor = tensor.detach()
    try:
        return np.asarray(tensor.numpy())
    except TypeError:  # numpy has no such type, for example bfloat16
        pass
    itemsize = tensor.element_size()
    if itemsize not in _TORCH_INTEGERS:
        msg = f"there is no view of the bytes of a tensor of {tensor.dtype}"
        raise UnsupportedError(msg)
    raw = tensor.view(getattr(torch, _TORCH_INTEGERS[itemsize])).numpy()
    return np.asarray(raw).view(np.dtype((np.void, itemsize)))


def _from_dlpack(obj: Foreign) -> np.ndarray[Any, Any]:
    try:
        device, number = obj.__dlpack_device__()
    except Exception as error:
        msg = f"{_name(obj)} has __dlpack__, but does not name its device: {error}"
        raise ArgumentTypeError(msg) from error
    if int(device) not in _HOST_DEVICES:
        _refuse_device(obj, f"DLPack device {int(device)}:{int(number)}")
    try:
        try:
            return np.from_dlpack(obj, copy=False)
        except TypeError:  # numpy < 2.1, or an owner older than DLPack 1.0, which never copies
            return np.from_dlpack(obj)
    except Exception as error:
        msg = f"{_name(obj)} exports by DLPack what numpy cannot take: {error}"
        raise ArgumentTypeError(msg) from error


class _Interface:
    """Shows numpy the interface alone, so that it cannot choose a way that copies."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, interface: dict[str, Any], owner: object) -> None:
        self.__array_interface__ = interface
        self.owner = owner


def _from_array_interface(obj: object, interface: object) -> np.ndarray[Any, Any]:
    if not isinstance(interface, dict):
        msg = f"the __array_interface__ of {_name(obj)} is not a dictionary"
        raise ArgumentTypeError(msg)
    data = interface.get("data")
    if data is None:  # then the object's own buffer is meant, and it has none
        msg = f"the __array_interface__ of {_name(obj)} has no data"
        raise ArgumentTypeError(msg)
    try:
        array = np.asarray(_Interface(interface, obj))
    except Exception as error:
        msg = f"the __array_interface__ of {_name(obj)} cannot be used: {error}"
        raise ArgumentTypeError(msg) from error
    if isinstance(data, tuple) and array.size and array.ctypes.data != data[0]:
        msg = f"numpy copied the memory of {_name(obj)} instead of sharing it"
        raise ArgumentTypeError(msg)
    return array
