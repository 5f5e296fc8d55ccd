# SPDX-License-Identifier: Apache-2.0
"""Window memory as numpy arrays: the caller's, and what is mapped here."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hixl_rma import buffers
from hixl_rma.errors import ArgumentError, ArgumentTypeError, ReadOnlyBufferError
from hixl_rma.layout import Exposure

__all__ = ["MappedMemory", "caller_memory"]


class MappedMemory:
    """Hands numpy a range of addresses and keeps it mapped for as long as a view lives."""

    def __init__(self, address: int, exposure: Exposure, keep: object) -> None:
        self._keep = keep
        self.__array_interface__ = {
            "version": 3,
            "data": (address, False),
            "shape": exposure.shape,
            "typestr": exposure.dtype.str,
            "descr": exposure.dtype.descr if exposure.dtype.names else [("", exposure.dtype.str)],
        }


def caller_memory(buffer: object) -> npt.NDArray[Any]:
    """Return memory of the caller as an array over the same bytes.

    Raises
    ------
    ReadOnlyBufferError
        When it cannot be written.
    ArgumentError
        When it is not C-contiguous.
    ArgumentTypeError
        When it is no memory, or holds Python objects.
    """
    if isinstance(buffer, np.ndarray):
        array: npt.NDArray[Any] = buffer
        if array.dtype.hasobject:
            msg = "buffer holds Python objects, which are of one process alone"
            raise ArgumentTypeError(msg, operation="create")
    else:
        try:
            array = np.asarray(memoryview(buffer))  # type: ignore[arg-type]
        except TypeError:
            array = np.asarray(buffers.as_buffer(buffer, writable=True))
    if not array.flags.writeable:
        msg = "buffer is read-only"
        raise ReadOnlyBufferError(msg, operation="create")
    if not array.flags.c_contiguous:
        msg = "buffer must be C-contiguous"
        raise ArgumentError(msg, operation="create")
    return array
