# SPDX-License-Identifier: Apache-2.0
"""Shapes and element types of window memory, and what a basic index selects of them."""

from __future__ import annotations

import json
import math
import operator
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

import numpy as np

from hixl_rma.errors import ArgumentError, ArgumentTypeError, RangeError

__all__ = ["Exposure", "checked_dtype", "checked_shape"]

_MOST_BYTES = 1 << 62


def checked_dtype(dtype: object) -> np.dtype[Any]:
    """Return the numpy type of the elements of a window.

    Raises
    ------
    ArgumentTypeError
        When there is no such type, or it holds Python objects.
    """
    try:
        found: np.dtype[Any] = np.dtype(dtype)  # type: ignore[call-overload]
    except TypeError as error:
        msg = f"dtype: {error}"
        raise ArgumentTypeError(msg) from None
    if found.hasobject:
        msg = "dtype: a window cannot hold Python objects, which are of one process alone"
        raise ArgumentTypeError(msg)
    return found


def _extent(value: object) -> int:
    if isinstance(value, (bool, np.bool_)) or not hasattr(value, "__index__"):
        msg = f"shape takes integers, not {type(value).__name__}"
        raise ArgumentTypeError(msg)
    extent = operator.index(value)
    if extent < 0:
        msg = f"shape takes integers >= 0, not {extent}"
        raise ArgumentError(msg)
    return extent


def checked_shape(shape: object, itemsize: int) -> tuple[int, ...]:
    """Return a shape as a tuple.

    Raises
    ------
    ArgumentTypeError
        When it is neither an integer nor a sequence of integers.
    ArgumentError
        When an extent is negative, or the size in bytes is out of reach.
    """
    if isinstance(shape, (tuple, list)):
        extents = tuple(_extent(value) for value in shape)
    else:
        extents = (_extent(shape),)
    nbytes = math.prod(extents) * itemsize
    if nbytes > _MOST_BYTES:
        msg = f"shape {extents} needs {nbytes} bytes, which no machine has"
        raise ArgumentError(msg)
    return extents


def _tuples(descr: object) -> object:
    # JSON has made lists of the tuples that numpy's descriptions of types consist of.
    if isinstance(descr, list):
        return [tuple(_field(part) for part in field) for field in descr]
    return descr


def _field(part: object) -> object:
    if isinstance(part, list):
        nested = part and isinstance(part[0], list)
        return _tuples(part) if nested else tuple(part)
    return part


@dataclass(frozen=True)
class Exposure:
    """What one rank exposes: the shape and the type of its memory.

    Attributes
    ----------
    shape : tuple of int
        Length of each axis; the memory is in C order.
    dtype : numpy.dtype
        Type of the elements.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def to_bytes(self) -> bytes:
        """Return the form that travels to the other ranks."""
        descr = np.lib.format.dtype_to_descr(self.dtype)
        return json.dumps({"shape": self.shape, "dtype": descr}).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Exposure:
        """Read what `to_bytes` of another rank returned."""
        fields = json.loads(data)
        descr: Any = _tuples(fields["dtype"])
        dtype = np.lib.format.descr_to_dtype(descr)
        return cls(tuple(fields["shape"]), dtype)

    def select(self, index: object) -> tuple[int, int, tuple[int, ...], tuple[int, ...]]:
        """Resolve a basic index as numpy does.

        Parameters
        ----------
        index : int, slice, Ellipsis, None or a tuple of these
            What to select.

        Returns
        -------
        tuple
            (offset of the first element [bytes], element size [bytes], shape, strides [bytes]).

        Raises
        ------
        ArgumentTypeError
            When the index holds anything else.
        ArgumentError
            When a slice has a step of zero.
        RangeError
            When it has too many axes, two ellipses or an element outside the shape.
        """
        parts = list(index) if isinstance(index, tuple) else [index]
        axes = sum(part is not None and part is not Ellipsis for part in parts)
        ellipses = sum(part is Ellipsis for part in parts)
        if ellipses > 1 or axes > len(self.shape):
            msg = f"index {index} has too many axes for shape {self.shape}"
            raise RangeError(msg)
        if not ellipses:
            parts.append(Ellipsis)
        at = parts.index(Ellipsis)
        parts[at : at + 1] = [slice(None)] * (len(self.shape) - axes)
        return self._walk(parts, self._strides())

    def _strides(self) -> list[int]:
        strides = [self.dtype.itemsize] * len(self.shape)
        for axis in range(len(self.shape) - 2, -1, -1):
            strides[axis] = strides[axis + 1] * self.shape[axis + 1]
        return strides

    def _walk(
        self, parts: list[Any], strides: list[int]
    ) -> tuple[int, int, tuple[int, ...], tuple[int, ...]]:
        offset, axis = 0, 0
        shape: list[int] = []
        steps: list[int] = []
        for part in parts:
            if part is None:
                shape.append(1)
                steps.append(0)
                continue
            length, stride = self.shape[axis], strides[axis]
            if isinstance(part, slice):
                first, count, step = _sliced(part, length)
                offset += first * stride if count else 0
                shape.append(count)
                steps.append(step * stride)
            else:
                offset += _element(part, length, axis) * stride
            axis += 1
        return offset, self.dtype.itemsize, tuple(shape), tuple(steps)


def _sliced(part: slice, length: int) -> tuple[int, int, int]:
    try:
        first, stop, step = part.indices(length)
    except TypeError as error:
        msg = f"index: {error}"
        raise ArgumentTypeError(msg) from None
    except ValueError as error:
        msg = f"index: {error}"
        raise ArgumentError(msg) from None
    return first, len(range(first, stop, step)), step


def _element(part: object, length: int, axis: int) -> int:
    if isinstance(part, (bool, np.bool_, EllipsisType)) or not hasattr(part, "__index__"):
        msg = f"index takes integers, slices, ... and None, not {type(part).__name__}"
        raise ArgumentTypeError(msg)
    try:
        index = operator.index(part)
    except TypeError:
        msg = f"index takes integers, slices, ... and None, not {type(part).__name__}"
        raise ArgumentTypeError(msg) from None
    if not -length <= index < length:
        msg = f"index {index} is out of range for axis {axis} with {length} elements"
        raise RangeError(msg)
    return index % length
