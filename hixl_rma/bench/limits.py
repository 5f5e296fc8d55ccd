# SPDX-License-Identifier: Apache-2.0
"""What the memory allows: warmed libc memcpy, and calls of process_vm_writev and process_vm_readv.

libc is called by ctypes with arguments that are ready, which leaves the GIL to a second thread.
Such a call costs some tenths of a microsecond, more than one of a window: see the rows of 8 bytes.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from hixl_rma.bench.timing import Loop

__all__ = ["BlockCopy", "CrossProcess", "Halves", "allow_everybody", "memcpy"]

Bytes = npt.NDArray[np.uint8]
_MOST = 0x7FFFF000  # the most bytes the kernel moves in one call
_PR_SET_PTRACER, _ANYBODY = 0x59616D61, ctypes.c_ulong(-1)


class _Range(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


_libc = ctypes.CDLL(None, use_errno=True)
for _function in (_libc.process_vm_writev, _libc.process_vm_readv):
    _function.restype = ctypes.c_ssize_t
    _function.argtypes = (
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_ulong,
        ctypes.c_void_p,
        ctypes.c_ulong,
        ctypes.c_ulong,
    )


def allow_everybody() -> None:
    """Let the other rank trace this process, where the system asks for leave."""
    _libc.prctl(_PR_SET_PTRACER, _ANYBODY, 0, 0, 0)


def memcpy(target: Bytes, origin: Bytes) -> Loop:
    """Return a loop over one memcpy."""
    call = _memcpy_call(target, origin)

    def loop(times: int) -> None:
        for _ in repeat(None, times):
            call()

    return loop


def _memcpy_call(target: Bytes, origin: Bytes) -> Callable[[], object]:
    arguments = ctypes.c_void_p(target.ctypes.data), ctypes.c_void_p(origin.ctypes.data)
    return functools.partial(_libc.memcpy, *arguments, ctypes.c_size_t(origin.nbytes))


class BlockCopy:
    """Copies of scattered blocks, one memcpy each, in a loop that is numpy's own.

    Parameters
    ----------
    target : array of uint8
        Of whole blocks.
    origin : array of uint8
        The blocks to copy, one after the other.
    where : array of int
        For each of them the block of `target` that it goes to.
    block : int
        Bytes of a block [bytes].
    """

    def __init__(self, target: Bytes, origin: Bytes, where: npt.NDArray[Any], block: int) -> None:
        self._target, self._origin = target.view(f"V{block}"), origin.view(f"V{block}")
        self._where = where

    def __call__(self, times: int) -> None:
        """Copy all blocks so many times."""
        for _ in repeat(None, times):
            self._target[self._where] = self._origin


class Halves:
    """An operation on two halves at once, the second by a thread that waits for it.

    Parameters
    ----------
    first, second : callable
        What each thread does; both have to give up the GIL.
    """

    def __init__(self, first: Callable[[], object], second: Callable[[], object]) -> None:
        self._first, self._second = first, second
        self._pool = ThreadPoolExecutor(1)

    def __call__(self, times: int) -> None:
        """Perform it so many times."""
        for _ in repeat(None, times):
            other = self._pool.submit(self._second)
            self._first()
            other.result()

    def close(self) -> None:
        """End the thread."""
        self._pool.shutdown()

    @classmethod
    def of_memcpy(cls, target: Bytes, origin: Bytes) -> Halves:
        """Return memcpy with two threads."""
        middle = origin.nbytes // 2
        return cls(
            _memcpy_call(target[:middle], origin[:middle]),
            _memcpy_call(target[middle:], origin[middle:]),
        )


class CrossProcess:
    """Calls of process_vm_writev or process_vm_readv.

    Parameters
    ----------
    pid : int
        The other process.
    remote : int
        Address there.
    local : array of uint8
        The memory here.
    read : bool
        Whether the bytes come from there.
    """

    def __init__(self, pid: int, remote: int, local: Bytes, *, read: bool) -> None:
        self._pid, self._local, self._remote = pid, local, remote
        self._call = _libc.process_vm_readv if read else _libc.process_vm_writev

    def once(self) -> None:
        """Move all bytes, in as many calls as the kernel wants."""
        done, size = 0, self._local.nbytes
        while done < size:
            left = min(size - done, _MOST)
            here = _Range(self._local.ctypes.data + done, left)
            there = _Range(self._remote + done, left)
            moved = self._call(self._pid, ctypes.addressof(here), 1, ctypes.addressof(there), 1, 0)
            if moved <= 0:
                raise OSError(ctypes.get_errno(), "cross-process copy was refused")
            done += moved

    def loop(self) -> Loop:
        """Return a loop with nothing around the call, for what one call moves."""
        size = self._local.nbytes
        here, there = _Range(self._local.ctypes.data, size), _Range(self._remote, size)
        call, pid = self._call, self._pid
        local, remote = ctypes.addressof(here), ctypes.addressof(there)
        self.once()  # raises where the system refuses

        def loop(times: int, _kept: object = (here, there)) -> None:
            for _ in repeat(None, times):
                if call(pid, local, 1, remote, 1, 0) != size:
                    raise OSError(ctypes.get_errno(), "a cross-process copy was cut short")

        return loop

    def half(self, second: bool) -> CrossProcess:
        """Return the same for one half of the bytes."""
        middle = self._local.nbytes // 2
        part = self._local[middle:] if second else self._local[:middle]
        return CrossProcess(
            self._pid,
            self._remote + (middle if second else 0),
            part,
            read=self._call is _libc.process_vm_readv,
        )

    def blocks(self, where: npt.NDArray[Any], block: int) -> Loop:
        """Return a loop over one call that moves blocks to scattered places."""
        count = len(where)
        here, there = (_Range * 1)(), (_Range * count)()
        here[0] = _Range(self._local.ctypes.data, count * block)
        for index, place in enumerate(where):
            there[index] = _Range(self._remote + int(place) * block, block)
        call, pid, size = self._call, self._pid, count * block
        local, remote = ctypes.addressof(here), ctypes.addressof(there)

        def loop(times: int, _kept: object = (here, there)) -> None:
            for _ in repeat(None, times):
                if call(pid, local, 1, remote, count, 0) != size:
                    raise OSError(ctypes.get_errno(), "a cross-process copy was cut short")

        return loop
