# SPDX-License-Identifier: Apache-2.0
"""Protocols and aliases that the signatures of the package use.

Nothing here costs an import: numpy is named for type checkers alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = [
    "BufferLike",
    "DTypeLike",
    "Foreign",
    "NotificationSelector",
    "ShapeLike",
    "SupportsArrayInterface",
    "SupportsBuffer",
    "SupportsCommunicator",
    "SupportsDLPack",
    "TargetDisplacement",
    "Timeout",
    "VectorOps",
]


Foreign: TypeAlias = Any
"""An object of a library whose types are not at hand when types are checked (mpi4py, torch)."""


class SupportsBuffer(Protocol):
    """An object with the buffer protocol (PEP 3118): bytearray, memoryview, array, mmap."""

    def __buffer__(self, flags: int, /) -> memoryview:
        """Return a view of the memory."""


class SupportsDLPack(Protocol):
    """An object that exports its memory by DLPack."""

    def __dlpack__(self, *, stream: object = None) -> object:
        """Return a capsule with the tensor."""

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the kind and the number of the device."""


class SupportsArrayInterface(Protocol):
    """An object that describes its memory by numpy's array interface."""

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """The address, shape, strides and type of the memory."""


class SupportsCommunicator(Protocol):
    """A communicator of mpi4py, as far as this package looks at it."""

    def Get_rank(self) -> int:
        """Return the rank of the caller."""

    def Get_size(self) -> int:
        """Return the number of ranks."""

    def Idup(self, info: object = None) -> tuple[object, object]:
        """Begin a duplication; return the new communicator and a request."""


BufferLike: TypeAlias = (
    "SupportsBuffer | SupportsDLPack | SupportsArrayInterface | npt.NDArray[Any]"
)
"""Memory of the caller: any object with a buffer, a numpy array, a torch tensor on the CPU."""

DTypeLike: TypeAlias = "npt.DTypeLike"
"""Whatever `numpy.dtype` takes."""

ShapeLike: TypeAlias = "int | Sequence[int]"
"""A number of elements, or the length of each axis."""

TargetDisplacement: TypeAlias = (
    "int | slice | EllipsisType | tuple[int | slice | EllipsisType | None, ...]"
)
"""Where in the target: a displacement in its units, or a basic index of a shaped window."""

VectorOps: TypeAlias = "Sequence[tuple[BufferLike, int]] | npt.NDArray[np.uint64]"
"""Pieces: (origin, target_disp) pairs, or rows of (address, displacement, bytes)."""

NotificationSelector: TypeAlias = "int | range | Sequence[int]"
"""One notification id, or several."""

Timeout: TypeAlias = "float | None"
"""Seconds, or None to wait until success or the loss of a peer."""
