# SPDX-License-Identifier: Apache-2.0
"""Windows of every flavour and transport, the patterns put through them, and checks of both."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import hixl_rma as rma

Bytes = npt.NDArray[np.uint8]

GUARD_BYTES = 4096
GUARD_VALUE = 0xA5


@dataclass(frozen=True)
class Kind:
    """A way to make a window: whose memory it is, and which data transports may reach it."""

    flavour: str
    transports: str | None = None

    def __str__(self) -> str:
        return f"{self.flavour}-{self.transports or 'default'}"


ALLOCATE = Kind("allocate")
CREATE = Kind("create")
# Memory of the library is reached by shm and cma, the caller's memory by cma and staged.
KINDS = (
    Kind("allocate", "shm"),
    Kind("allocate", "cma"),
    Kind("create", "cma"),
    Kind("create", "staged"),
)


@contextlib.contextmanager
def environment(**variables: str | None) -> Iterator[None]:
    """Set environment variables, or remove those given as None, for the body."""
    before = {name: os.environ.get(name) for name in variables}
    try:
        _update(variables)
        yield
    finally:
        _update(before)


def _update(variables: dict[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


class GuardedMemory:
    """An array of the caller with guard bytes on both sides."""

    def __init__(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> None:
        itemsize = np.dtype(dtype).itemsize
        nbytes = int(np.prod(shape)) * itemsize
        self._all: Bytes = np.full(nbytes + 2 * GUARD_BYTES, GUARD_VALUE, "u1")
        inner = self._all[GUARD_BYTES : GUARD_BYTES + nbytes]
        inner[:] = 0
        self.array: npt.NDArray[Any] = inner.view(dtype).reshape(shape)

    def check(self) -> None:
        """Fail when a byte beside the array changed."""
        assert (self._all[:GUARD_BYTES] == GUARD_VALUE).all(), "bytes before the window changed"
        assert (self._all[-GUARD_BYTES:] == GUARD_VALUE).all(), "bytes after the window changed"


@contextlib.contextmanager
def open_window(
    shape: int | tuple[int, ...],
    dtype: npt.DTypeLike = "u1",
    *,
    kind: Kind = ALLOCATE,
    comm: Any = None,
    **options: Any,
) -> Iterator[rma.Window]:
    """Make a window of that kind, free it at the end and check the bytes beside created ones."""
    memory = GuardedMemory(shape, dtype) if kind.flavour == "create" else None
    with environment(HIXL_RMA_TRANSPORTS=kind.transports):
        if memory is None:
            window = rma.Window.allocate(shape, dtype, comm=comm, **options)
        else:
            window = rma.Window.create(memory.array, comm=comm, **options)
    with window:
        yield window
    if memory is not None:
        memory.check()


def neighbours(comm: Any) -> tuple[int, int]:
    """Return the ranks to the right and to the left; both are this rank where it is alone."""
    return (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size


def meet(comm: Any) -> None:
    """Wait for all ranks as a barrier does, but leave the processors to those that still work."""
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(0.001)


def pattern(seed: int, nbytes: int) -> Bytes:
    """Return bytes that depend on the seed and on their place, also beyond 256 of them."""
    index = np.arange(nbytes, dtype=np.uint64)
    mixed = (index + np.uint64(seed * 1_000_003 + 1)) * np.uint64(0x9E3779B97F4A7C15)
    result: Bytes = (mixed >> np.uint64(56)).astype(np.uint8)
    return result


def raw(window: rma.Window) -> Bytes:
    """Return this rank's part of the window as bytes."""
    local: npt.NDArray[Any] = window.local
    return local.reshape(-1).view(np.uint8)


def assert_bytes(actual: npt.NDArray[Any], expected: npt.NDArray[Any], what: str = "") -> None:
    """Fail with the first byte that differs."""
    left = np.ascontiguousarray(actual).reshape(-1).view(np.uint8)
    right = np.ascontiguousarray(expected).reshape(-1).view(np.uint8)
    assert left.size == right.size, f"{what}: {left.size} bytes, expected {right.size}"
    if not np.array_equal(left, right):
        wrong = np.flatnonzero(left != right)
        first = int(wrong[0])
        message = (
            f"{what}: {wrong.size} bytes of {left.size} differ, the first at {first}: "
            f"{left[first]} instead of {right[first]}"
        )
        raise AssertionError(message)


def assert_usable(window: rma.Window, comm: Any) -> None:
    """Fail unless every rank can still lock, put, get and see the result. Collective."""
    right, left = neighbours(comm)
    memory = raw(window)
    saved = memory[:8].copy()
    comm.Barrier()
    value = np.array([comm.rank * 7 + 3], "u8")
    back = np.zeros(1, "u8")
    with window.lock(right):
        window.put(value, right, 0)
        window.flush(right)
        window.get(back, right, 0)
    assert back[0] == value[0], "a get does not return what was put before"
    comm.Barrier()
    assert int(memory[:8].view("u8")[0]) == left * 7 + 3, "the neighbour's put did not arrive"
    memory[:8] = saved
    comm.Barrier()


def rounds(count: int, comm: Any = None) -> int:
    """Scale a number of rounds by HIXL_RMA_TEST_ROUNDS, and down where ranks share processors."""
    scale = float(os.environ.get("HIXL_RMA_TEST_ROUNDS", "1"))
    processors = len(os.sched_getaffinity(0))
    if comm is not None and comm.size > processors:
        scale *= processors / comm.size
    return max(1, int(count * scale))
