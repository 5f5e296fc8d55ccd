# SPDX-License-Identifier: Apache-2.0
"""Windows: memory that the ranks of a group expose to each other."""

from __future__ import annotations

import asyncio
import atexit
import importlib
import os
import time
import warnings
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, SupportsIndex

import numpy as np
import numpy.typing as npt

from hixl_rma import _native, bootstrap, buffers
from hixl_rma.config import Config, validate_timeout
from hixl_rma.creation import Plan, make_collectively
from hixl_rma.errors import (
    ArgumentError,
    ArgumentTypeError,
    ClosedError,
    UnsupportedError,
)
from hixl_rma.layout import Exposure, checked_dtype, checked_shape
from hixl_rma.memory import MappedMemory, caller_memory
from hixl_rma.notification import ANY, ANY_SOURCE, Notification
from hixl_rma.request import Request
from hixl_rma.statistics import PeerStats, WaitStats, WindowStats
from hixl_rma.typing import (
    BufferLike,
    DTypeLike,
    Foreign,
    NotificationSelector,
    ShapeLike,
    TargetDisplacement,
    Timeout,
)

__all__ = [
    "NOCHECK",
    "NOPRECEDE",
    "NOPUT",
    "NOSTORE",
    "NOSUCCEED",
    "EpochGuard",
    "Window",
]

NOCHECK: Final = 1
"""Assertion: no conflicting lock is held, or the matching post was made. Checked all the same."""
NOSTORE: Final = 2
"""Assertion: the local memory was not stored to since the last synchronisation."""
NOPUT: Final = 16
"""Assertion: the local memory will not be put or accumulated to until the next synchronisation."""
NOPRECEDE: Final = 4
"""Assertion: the fence ends no epoch with operations of this rank."""
NOSUCCEED: Final = 8
"""Assertion: the fence begins no epoch with operations of this rank."""


EpochGuard = _native.EpochGuard
"""What `fence`, `start`, `post`, `lock` and `lock_all` return: ``with`` over it ends the epoch."""
_MOST_NOTIFICATIONS = 65_536

_native.set_buffer_converter(lambda obj, writable: buffers.as_buffer(obj, writable=writable))


def _checked_integer(value: object, name: str, least: int, most: int) -> int:
    if isinstance(value, (bool, np.bool_)) or not hasattr(value, "__index__"):
        msg = f"{name} takes an integer, not {type(value).__name__}"
        raise ArgumentTypeError(msg)
    number = int(value.__index__())
    if not least <= number <= most:
        msg = f"{name} takes an integer from {least} to {most}, not {number}"
        raise ArgumentError(msg)
    return number


class Window(_native.CoreWindow):
    """Memory of every rank of a group, open to one-sided access by all of them.

    Made by `allocate` (memory of the library, reached by load and store on one host) or `create`
    (memory of the caller). Leaving ``with Window...`` without an exception frees the window, which
    is collective; with one, this rank alone leaves it and the others get PeerLostError.

    Notes
    -----
    Every method may be called from any thread. The rules of epochs and ranges are checked in every
    call, before a byte moves; after an error the window works on. Blocking calls take a ``timeout``
    in seconds (None: ``HIXL_RMA_TIMEOUT``, else none) and run signal handlers within 100 ms.
    """

    # No instance dictionary: a method is found without looking into one first.
    __slots__ = {
        "__weakref__": "",
        "_created": "the caller's memory of a created window",
        "_exposures": "what each rank exposes",
        "_live": "whether creation came to its end",
        "_local": "the view that `local` returns",
        "_pid": "the process it was made in",
        "comm": "The communicator or bootstrap it was made over, as given.",
        "rank": "The rank of the caller in the group of the window.",
        "size": "The number of ranks of the group.",
    }

    rank: int
    size: int
    comm: Foreign

    _pid: int
    _live: bool
    _exposures: list[Exposure]
    _created: npt.NDArray[Any] | None
    _local: npt.NDArray[Any] | None

    # ------------------------------------------------------------------ making one

    def __init__(self, *_: object, **__: object) -> None:
        msg = "a window is made by Window.allocate or Window.create"
        raise ArgumentTypeError(msg)

    @classmethod
    def allocate(
        cls,
        shape: ShapeLike,
        dtype: DTypeLike = "u1",
        *,
        disp_unit: int | None = None,
        comm: Foreign = None,
        notifications: int = 256,
        memory: str = "host",
    ) -> Window:
        """Make a window over memory that the library allocates.

        Parameters
        ----------
        shape : int or sequence of int
            Elements this rank brings, an integer being a count as in `numpy.empty`; may differ
            between ranks and be 0. The memory is zero.
        dtype : dtype, default "u1"
            Type of the elements; may differ between ranks.
        disp_unit : int, default the size of an element
            Bytes of one displacement into this rank's memory.
        comm : None, mpi4py.MPI.Intracomm or Bootstrap, default None
            The group. None is ``MPI.COMM_WORLD`` where mpi4py can be imported, else this process.
        notifications : int, default 256
            Notification ids of each rank, 1 to 65,536; equal on all ranks.
        memory : str, default "host"
            Kind of memory.

        Returns
        -------
        Window
            The window, with no epoch open.

        Raises
        ------
        ArgumentError, ArgumentTypeError, UnsupportedError
            For arguments that cannot be; on the other ranks too, naming the culprit.
        ResourceError
            When there is not enough memory, or the records of notifications pass their cap.
        TransportError
            When no transport reaches a rank; ``reasons`` tells why, for each.
        BootstrapError, RmaTimeoutError
            When the ranks do not come together.

        Notes
        -----
        Collective over the group.
        """

        def plan() -> Plan:
            if memory != "host":
                return _refuse_memory(memory)
            kind = checked_dtype(dtype)
            exposure = Exposure(checked_shape(shape, kind.itemsize), kind)
            nbytes = int(np.prod(exposure.shape, dtype=object)) * kind.itemsize
            return _plan(exposure, nbytes, disp_unit, notifications)

        return cls._make(plan, comm, None)

    @classmethod
    def create(
        cls,
        buffer: BufferLike,
        *,
        disp_unit: int | None = None,
        comm: Foreign = None,
        notifications: int = 256,
    ) -> Window:
        """Make a window over memory of the caller.

        Parameters
        ----------
        buffer : writable C-contiguous memory
            A numpy array, a torch tensor on the CPU, or any object with a buffer or DLPack. The
            window keeps it alive, and from being resized, until it is freed.
        disp_unit, comm, notifications
            As for `allocate`.

        Returns
        -------
        Window
            The window, with no epoch open.

        Raises
        ------
        ReadOnlyBufferError
            When the memory cannot be written.
        ArgumentError
            When it is not contiguous, and otherwise as `allocate`.

        Notes
        -----
        Collective over the group. Other processes reach the memory by cross-process copy (cma), or,
        where the kernel refuses that, through a buffer that a thread of this process serves
        (staged).
        """
        holder: list[npt.NDArray[Any]] = []

        def plan() -> Plan:
            array = caller_memory(buffer)
            holder.append(array)
            exposure = Exposure(array.shape, array.dtype)
            return _plan(exposure, array, disp_unit, notifications)

        return cls._make(plan, comm, holder)

    @classmethod
    def _make(
        cls, plan: Callable[[], Plan], comm: Foreign, holder: list[npt.NDArray[Any]] | None
    ) -> Window:
        ranks = bootstrap.resolve(comm)
        window = cls.__new__(cls)
        window.rank, window.size, window.comm = ranks.rank, ranks.size, comm
        window._pid = os.getpid()
        window._live = False
        try:
            window._exposures = make_collectively(window, plan, ranks, Config.from_environment())
        except BaseException:
            # Kept alive by the traceback otherwise: its memory goes now.
            window._abort()
            raise
        finally:
            _native.forward_log()
        window._created = holder[0] if holder else None
        window._local = None
        window._live = True
        _open_windows.add(window)
        return window

    # ------------------------------------------------------------------ memory and facts

    @property
    def local(self) -> npt.NDArray[Any]:
        """The memory of this rank as a numpy array; a view keeps the memory mapped after free."""
        self._check_open("local")
        if self._local is None:
            self._local = self._created if self._created is not None else self._view(self.rank)
        return self._local

    def tensor(self) -> Foreign:
        """Return this rank's memory as a torch tensor over the same bytes.

        Raises
        ------
        UnsupportedError
            When torch cannot be imported or has no such element type.
        """
        local = self.local
        try:
            torch = importlib.import_module("torch")
            return torch.from_numpy(local)
        except ImportError as error:
            msg = f"tensor() needs torch: {error}"
            raise UnsupportedError(msg) from error
        except TypeError as error:
            msg = f"torch has no type for {local.dtype}: {error}"
            raise UnsupportedError(msg) from error

    def remote(self, rank: SupportsIndex) -> npt.NDArray[Any]:
        """Return the memory of `rank` for loads and stores, where it is mapped here.

        Raises
        ------
        UnsupportedError
            When the transport to that rank does not map its memory.
        """
        self._check_open("remote")
        found = self._mapped(rank)  # type: ignore[arg-type]
        index = rank.__index__()
        if index == self.rank:
            return self.local
        if found is None and self._exposures[index].shape and 0 in self._exposures[index].shape:
            return np.empty(self._exposures[index].shape, self._exposures[index].dtype)
        if found is None:
            msg = f"the memory of rank {index} is not mapped: it is reached through "
            raise UnsupportedError(msg + self.transports[index], operation="remote")
        return self._view(index)

    def _view(self, rank: int) -> npt.NDArray[Any]:
        exposure = self._exposures[rank]
        found = self._mapped(rank)
        if found is None:
            return np.empty(exposure.shape, exposure.dtype)
        address, _, keep = found
        return np.asarray(MappedMemory(address, exposure, keep))

    def _select(
        self, rank: int, index: object
    ) -> tuple[int, int, tuple[int, ...], tuple[int, ...]]:
        # Called by the native operations for a target_disp that is no integer.
        return self._exposures[rank].select(index)

    def _check_open(self, operation: str) -> None:
        if not self._live or self._facts("closed"):
            msg = "the window was freed"
            raise ClosedError(msg, operation=operation)

    @property
    def transports(self) -> tuple[str, ...]:
        """The transport that carries data to each rank, by rank."""
        return tuple(self._facts("transports"))

    @property
    def failed_ranks(self) -> tuple[int, ...]:
        """The ranks that are known to have left without freeing the window, ascending."""
        return tuple(self._facts("failed_ranks"))

    def stats(self) -> WindowStats:
        """Return what this rank has issued and waited for, counted natively and always on.

        Notes
        -----
        Threads that issue to one target at the same moment may lose a count.
        """
        return WindowStats(
            tuple(PeerStats(*numbers) for numbers in self._facts("stats")),
            {kind: WaitStats(waits, seconds) for kind, waits, seconds in self._facts("waits")},
        )

    # ------------------------------------------------------------------ requests

    def rput(
        self, origin: BufferLike, target_rank: SupportsIndex, target_disp: TargetDisplacement = 0
    ) -> Request:
        """Like `put`; the request is complete when the bytes are placed at the target."""
        return Request(self._rput(origin, target_rank, target_disp))

    def rget(
        self, origin: BufferLike, target_rank: SupportsIndex, target_disp: TargetDisplacement = 0
    ) -> Request:
        """Like `get`; the request is complete when the bytes are in `origin`."""
        return Request(self._rget(origin, target_rank, target_disp))

    def rput_notify(
        self,
        origin: BufferLike,
        target_rank: SupportsIndex,
        target_disp: TargetDisplacement = 0,
        *,
        notification: SupportsIndex,
        value: SupportsIndex = 1,
        order: str = "all",
    ) -> Request:
        """Like `put_notify`; the request is complete when the bytes are placed at the target."""
        return Request(
            self._rput_notify(
                origin,
                target_rank,
                target_disp,
                notification=notification,
                value=value,
                order=order,
            )
        )

    def raccumulate(
        self,
        origin: BufferLike,
        target_rank: SupportsIndex,
        target_disp: TargetDisplacement = 0,
        *,
        op: str = "sum",
    ) -> Request:
        """Like `accumulate`; the request is complete when the target is updated."""
        return Request(self._raccumulate(origin, target_rank, target_disp, op=op))

    def rget_accumulate(
        self,
        origin: BufferLike | None,
        result: BufferLike,
        target_rank: SupportsIndex,
        target_disp: TargetDisplacement = 0,
        *,
        op: str = "sum",
    ) -> Request:
        """Like `get_accumulate`; the request is complete when `result` has the old values."""
        return Request(self._rget_accumulate(origin, result, target_rank, target_disp, op=op))

    # ------------------------------------------------------------------ notifications

    async def wait_notify_async(
        self,
        notification: NotificationSelector = ANY,
        *,
        count: int = 1,
        source: int = ANY_SOURCE,
        consume: bool = True,
        timeout: Timeout = None,
    ) -> Notification:
        """Like `wait_notify`, without holding up the event loop.

        Notes
        -----
        Cancelling the task consumes nothing.
        """
        limit = validate_timeout(timeout)
        until = None if limit is None else time.monotonic() + limit
        descriptor = os.dup(self.notify_fileno())  # one for each task: a loop watches it once
        try:
            while True:
                note = self.test_notify(notification, count=count, source=source, consume=consume)
                if note is not None:
                    return note
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    return self._last_look(notification, count, source, consume)
                await _readable(descriptor, left)
        finally:
            os.close(descriptor)

    def _last_look(
        self, notification: NotificationSelector, count: int, source: int, consume: bool
    ) -> Notification:
        return self.wait_notify(
            notification, count=count, source=source, consume=consume, timeout=0
        )

    # ------------------------------------------------------------------ the end

    def free(self, timeout: Timeout = None) -> None:
        """Free the window together with all its ranks. A second call does nothing.

        Parameters
        ----------
        timeout : float or None, default None
            Seconds. A free that timed out is pending: calling it again goes on with it.

        Raises
        ------
        EpochError
            Inside a lock, start or post epoch.
        RmaTimeoutError
            When the time is up.
        TransferError
            When something of this rank failed: the window is freed nevertheless.

        Notes
        -----
        Collective. Views of the memory stay valid.
        """
        try:
            super().free(timeout)
        finally:
            if self._facts("closed"):
                self._forget()

    def _forget(self) -> None:
        self._local = self._created = None
        _open_windows.discard(self)
        _native.forward_log()

    def _leave(self) -> None:
        self._abort()
        self._forget()

    def __enter__(self) -> Window:
        """Return the window."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Free the window, or leave it alone when the body raised."""
        if error is None:
            self.free()
        else:
            self._leave()

    def __del__(self) -> None:
        """Leave a window that was not freed."""
        if getattr(self, "_live", False) and self._pid == os.getpid() and not self._facts("closed"):
            warnings.warn(f"{self!r} was not freed", ResourceWarning, stacklevel=2, source=self)

    def __repr__(self) -> str:
        """Say whose it is and how large."""
        if not getattr(self, "_live", False):
            return "<Window that was not made>"
        mine = self._exposures[self.rank]
        state = "freed" if self._facts("closed") else f"{mine.shape} {mine.dtype}"
        return f"<Window rank {self.rank} of {self.size}: {state}>"


def _refuse_memory(memory: object) -> Plan:
    if not isinstance(memory, str):
        msg = f"memory takes a name, not {type(memory).__name__}"
        raise ArgumentTypeError(msg)
    if memory in ("cuda", "ascend"):
        msg = f"memory {memory!r} is not in this version: only 'host' is"
        raise UnsupportedError(msg)
    msg = f"memory takes 'host', not {memory!r}"
    raise ArgumentError(msg)


def _plan(exposure: Exposure, memory: object, disp_unit: object, notifications: object) -> Plan:
    unit = max(1, exposure.dtype.itemsize) if disp_unit is None else disp_unit
    return Plan(
        exposure,
        memory,
        _checked_integer(unit, "disp_unit", 1, (1 << 63) - 1),
        _checked_integer(notifications, "notifications", 1, _MOST_NOTIFICATIONS),
    )


async def _readable(descriptor: int, timeout: float | None) -> None:
    # Another task may drain the descriptor in between, hence the look every 100 ms.
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await asyncio.wait_for(ready.wait(), 0.1 if timeout is None else min(0.1, timeout))
    except asyncio.TimeoutError:
        pass
    finally:
        loop.remove_reader(descriptor)


_open_windows: weakref.WeakSet[Window] = weakref.WeakSet()


def _abandon_windows() -> None:
    # Runs before mpi4py finalizes MPI (that is done when the interpreter itself goes down).
    for window in list(_open_windows):
        if window._pid == os.getpid():
            warnings.warn(f"{window!r} was open at exit", ResourceWarning, stacklevel=1)
            window._leave()


atexit.register(_abandon_windows)
