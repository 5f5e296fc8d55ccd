# SPDX-License-Identifier: Apache-2.0
"""The bootstrap over mpi4py: the one place that imports it.

NOTE [one duplicate per parent]
Exchanges run on a duplicate of the user's communicator, so that they meet no message of the user.
The duplicate is made at the first exchange and kept as an attribute (MPI-4.1, section 7.7) of the
parent, where it lives as long as the parent: a handle that MPI gives out again for a new
communicator never meets the duplicate of an old one. When the parent is freed, which is collective,
the attribute's callback frees the duplicate on all ranks.

NOTE [waiting for MPI]
Every step is a non-blocking call that is tested until the deadline. A collective that was begun
cannot be canceled: after a time-out, or when a signal's handler raised, it stays pending, MPI may
still write into its buffers, and no later exchange on this duplicate can be matched with those of
the other ranks. Hence the buffers are kept for ever and the duplicate is *broken* for good.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import struct
import threading
import time
from collections.abc import Callable

from hixl_rma.bootstrap.base import MAX_BYTES, Deadline
from hixl_rma.errors import ArgumentError, BootstrapError, RmaTimeoutError
from hixl_rma.typing import Foreign

__all__ = ["MpiBootstrap", "can_import", "is_communicator", "world"]

_LENGTH = struct.Struct("<Q")
_YIELDS = 200  # tests in a row that only give way to other processes, before sleeps begin
# A collective takes several steps, each of which needs a test at each rank: long sleeps from the
# start made an exchange of 4 ranks take 8 ms instead of 0.1 (measured with MPICH 5.0.2 on 2 cores),
# so sleeps grow with the wait.
_SLEEP_SHARE = 1 / 64  # of the time waited so far
_SLEEP_LIMITS = (20e-6, 1e-3)  # [s]; far below the 100 ms within which a signal has to be served

_lock = threading.Lock()
_keyval: int | None = None
# Buffers and requests of collectives that are pending for good. Each entry has one reference too
# many on purpose: MPI is finalized after Python has dropped this module, and may write until then.
_abandoned: list[object] = []


def can_import() -> bool:
    """Return whether mpi4py is installed and loads its MPI library (which initializes MPI)."""
    if not _installed():
        return False
    try:
        _mpi()
    except (ImportError, RuntimeError):  # mpi4py raises RuntimeError when it finds no MPI library
        return False
    return True


def _installed() -> bool:
    try:
        return importlib.util.find_spec("mpi4py") is not None
    except ValueError:  # somebody has put something else in its place in sys.modules
        return False


def is_communicator(obj: object) -> bool:
    """Return whether `obj` looks like a communicator of mpi4py, without importing mpi4py."""
    names = ("Get_rank", "Get_size", "Idup", "Iallgather", "Iallgatherv", "Set_attr")
    return not isinstance(obj, type) and all(callable(getattr(obj, name, None)) for name in names)


def world() -> MpiBootstrap:
    """Return the bootstrap over ``MPI.COMM_WORLD``."""
    return MpiBootstrap(_mpi().COMM_WORLD)


def _mpi() -> Foreign:
    from mpi4py import MPI

    return MPI


class _Channel:
    """What hangs at the parent: the duplicate, or why there is none."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.comm: Foreign = None
        self.broken = ""
        self.pending: tuple[object, ...] = ()  # what the collective in progress reads and writes

    def break_off(self, reason: str) -> None:
        self.broken = reason
        for item in (self.comm, *self.pending):
            if item is not None:
                _keep_for_ever(item)


def _keep_for_ever(item: object) -> None:
    import ctypes  # only needed once something has gone wrong

    _abandoned.append(item)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(item))


def _free_with_parent(parent: Foreign, _keyval: int, channel: Foreign) -> None:
    # Called by MPI when the parent is freed. Predefined communicators go at MPI_Finalize alone,
    # where nothing has to be freed; pending collectives forbid it (NOTE [waiting for MPI]).
    mpi = _mpi()
    if channel.comm is None or channel.broken or mpi.Is_finalized():
        return
    if parent in (mpi.COMM_WORLD, mpi.COMM_SELF):
        return
    comm, channel.comm = channel.comm, None
    comm.Free()


def _channel_of(comm: Foreign) -> _Channel:
    """Return the channel that hangs at `comm`; local."""
    global _keyval
    mpi = _mpi()
    with _lock:
        if _keyval is None:
            _keyval = mpi.Comm.Create_keyval(delete_fn=_free_with_parent)
        channel = comm.Get_attr(_keyval)
        if not isinstance(channel, _Channel):
            channel = _Channel()
            comm.Set_attr(_keyval, channel)
        return channel


class MpiBootstrap:
    """Exchanges bytes over a communicator of mpi4py.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        The ranks, and their order. It may be freed while windows made over it live on.

    Raises
    ------
    ArgumentError
        When it is a null handle or an inter-communicator.
    BootstrapError
        When MPI is not initialized, or finalized, or was initialized for another thread alone.

    Notes
    -----
    The constructor is local. The first exchange duplicates the communicator.
    """

    def __init__(self, comm: Foreign) -> None:
        mpi = _mpi()
        _check_state(mpi)
        if not comm:
            msg = "the communicator is MPI.COMM_NULL or was freed"
            raise ArgumentError(msg)
        if comm.Is_inter():
            msg = "windows need an intra-communicator: pass intercomm.Merge() instead"
            raise ArgumentError(msg)
        self._comm = comm
        self._rank: int = comm.Get_rank()
        self._size: int = comm.Get_size()
        self._name = f"mpi:{comm.Get_name()}".rstrip(":")

    @property
    def rank(self) -> int:
        """The caller's place, from 0."""
        return self._rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._size

    @property
    def name(self) -> str:
        """What messages call it."""
        return self._name

    def __repr__(self) -> str:
        """Say which rank of which communicator it is."""
        return f"<MpiBootstrap {self._name} rank {self._rank} of {self._size}>"

    def allgather(self, data: bytes, deadline: Deadline | None = None) -> list[bytes]:
        """Give `data` to every rank and return what each gave, by rank.

        See `hixl_rma.bootstrap.Bootstrap.allgather`. A time-out also ends every other bootstrap
        over the same communicator; windows that exist already are not touched.
        """
        if self._size == 1:
            _check_lengths([len(data)])
            return [bytes(data)]
        deadline = deadline or Deadline(None)
        mpi = _mpi()
        _check_state(mpi)
        if not self._comm:
            msg = f"{self._name}: the communicator was freed"
            raise BootstrapError(msg)
        _check_thread(mpi)
        channel = _channel_of(self._comm)
        left = deadline.remaining()
        if not channel.lock.acquire(timeout=-1 if left is None else left):
            msg = f"{self._name}: another thread is in an exchange on it"
            raise RmaTimeoutError(msg)
        try:
            if channel.broken:
                msg = (
                    f"{self._name} cannot be used any more: {channel.broken}; make new windows "
                    "over another communicator"
                )
                raise BootstrapError(msg)
            return self._guarded_exchange(channel, bytes(data), deadline)
        finally:
            channel.lock.release()

    def _guarded_exchange(self, channel: _Channel, data: bytes, deadline: Deadline) -> list[bytes]:
        """Exchange; whatever ends it early breaks the channel."""
        try:
            return self._exchange(channel, data, deadline)
        except ArgumentError:  # on all ranks alike, with nothing pending
            raise
        except RmaTimeoutError:
            channel.break_off("a time-out left a collective of it pending")
            raise
        except _mpi().Exception as error:
            channel.break_off(f"MPI failed ({error})")
            msg = f"{self._name}: MPI failed: {error}"
            raise BootstrapError(msg) from error
        except BaseException as error:
            channel.break_off(f"{type(error).__name__} left a collective of it pending")
            raise

    def _exchange(self, channel: _Channel, data: bytes, deadline: Deadline) -> list[bytes]:
        if channel.comm is None:
            comm, request = self._comm.Idup()
            channel.pending = (comm,)
            self._wait(request, deadline)
            comm.Set_errhandler(_mpi().ERRORS_RETURN)
            channel.comm = comm
        mine = bytearray(_LENGTH.pack(len(data)))
        everyones = bytearray(_LENGTH.size * self._size)
        channel.pending = (mine, everyones)
        request = channel.comm.Iallgather(
            [mine, _LENGTH.size, _mpi().BYTE], [everyones, _LENGTH.size, _mpi().BYTE]
        )
        self._wait(request, deadline)
        lengths = [length for (length,) in _LENGTH.iter_unpack(everyones)]
        # Every rank sees the same lengths, hence all raise here or none.
        _check_lengths(lengths)
        total = sum(lengths)
        if not total:
            return [b""] * self._size
        starts = [0, *itertools.accumulate(lengths[:-1])]
        gathered = bytearray(total)
        channel.pending = (data, gathered)
        request = channel.comm.Iallgatherv(
            [data, len(data), _mpi().BYTE], [gathered, lengths, starts, _mpi().BYTE]
        )
        self._wait(request, deadline)
        channel.pending = ()
        view = memoryview(gathered)
        return [
            bytes(view[start : start + length])
            for start, length in zip(starts, lengths, strict=True)
        ]

    def _wait(self, request: Foreign, deadline: Deadline) -> None:
        if not _poll(request.Test, deadline):
            msg = (
                f"{self._name}: rank {self._rank} of {self._size} waited {deadline.timeout} s, "
                "and not all ranks have made the same call"
            )
            raise RmaTimeoutError(msg)


def _poll(test: Callable[[], bool], deadline: Deadline) -> bool:
    """Call `test` until it is true, or the deadline has passed; between, let others run."""
    for _ in range(_YIELDS):
        if test():
            return True
        if deadline.expired:
            return False
        os.sched_yield()
    begin = time.monotonic()
    shortest, longest = _SLEEP_LIMITS
    while not test():
        left = deadline.remaining()
        if left == 0:
            return False
        sleep = min(max(shortest, (time.monotonic() - begin) * _SLEEP_SHARE), longest)
        time.sleep(sleep if left is None else min(sleep, left))
    return True


def _check_lengths(lengths: list[int]) -> None:
    for rank, length in enumerate(lengths):
        if length > MAX_BYTES:
            msg = f"rank {rank} gives {length} bytes to an exchange that takes {MAX_BYTES}"
            raise ArgumentError(msg)
    if sum(lengths) >= 1 << 31:  # the counts and displacements of MPI are 32 bits wide
        msg = f"all ranks together give {sum(lengths)} bytes; 2 GiB is too much"
        raise ArgumentError(msg)


def _check_state(mpi: Foreign) -> None:
    if not mpi.Is_initialized() or mpi.Is_finalized():
        state = "is finalized" if mpi.Is_finalized() else "is not initialized: call MPI.Init()"
        msg = f"MPI {state}"
        raise BootstrapError(msg)


def _check_thread(mpi: Foreign) -> None:
    level = mpi.Query_thread()
    if level < mpi.THREAD_SERIALIZED and not mpi.Is_thread_main():
        names = {mpi.THREAD_SINGLE: "THREAD_SINGLE", mpi.THREAD_FUNNELED: "THREAD_FUNNELED"}
        msg = (
            f"MPI was initialized with {names.get(level, level)}, which lets one thread alone call "
            "it: make windows in that thread, or set mpi4py.rc.thread_level = 'multiple'"
        )
        raise BootstrapError(msg)
