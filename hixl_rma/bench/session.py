# SPDX-License-Identifier: Apache-2.0
"""What the two ranks of a job share: windows of both sides, and what the target does meanwhile.

The ranks speak through a page that both have mapped, never through MPI, while something is
measured: a target that sleeps must not be inside MPI. The target watches for an MPI operation that
does not complete; it then calls MPI until the operation has, and says so, so that nothing hangs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from hixl_rma.bench import limits
from hixl_rma.bench.catalogue import ALLOCATED, ASLEEP, COMPUTING, CREATED, KIB
from hixl_rma.bench.timing import Effort, Guard, Loop, Stalled
from hixl_rma.bootstrap import MpiBootstrap
from hixl_rma.window import Window

__all__ = ["ORIGIN", "TARGET", "Session"]

ORIGIN, TARGET = 0, 1
# Words of the page, a cache line each.
_END, _TURN, _LEAVE, _RESCUED, _WORK, _ORDER, _TAKEN, _NAME, _TIMES = range(0, 72, 8)
_WORDS = 72
_NAP = 0.001  # [s]
_STEPS = 400  # of computing between two looks at the page; about 20 us


class Session:
    """One rank of the pair.

    Parameters
    ----------
    mpi : module
        ``mpi4py.MPI``.
    comm : mpi4py.MPI.Intracomm
        Of two ranks; 0 is the origin, 1 the target.
    max_size : int
        Most bytes of one operation [bytes].
    effort : Effort
        How long a row is measured.
    bound : float
        Seconds after which an MPI operation counts as stalled [s].
    """

    def __init__(
        self,
        mpi: Any,  # noqa: ANN401
        comm: Any,  # noqa: ANN401
        max_size: int,
        effort: Effort,
        bound: float = 0.5,
    ) -> None:
        self.mpi, self.comm, self.effort, self.bound = mpi, comm, effort, bound
        self.rank: int = comm.rank
        self.is_origin = self.rank == ORIGIN
        self.size = max(max_size, 4 * KIB)
        self.bootstrap = MpiBootstrap(comm)
        self.origin = np.full(self.size if self.is_origin else KIB, 7, np.uint8)
        self._phase = 0
        self._ours: dict[str, Window] = {}
        self._theirs: dict[str, Any] = {}
        self._memory: dict[str, npt.NDArray[np.uint8]] = {}
        self._page_window = self.window(_WORDS, "i8")
        self._page = self._page_window.remote(ORIGIN)
        limits.allow_everybody()
        self.pids: list[int] = comm.allgather(os.getpid())

    # ---------------------------------------------------------------------------------- windows

    def window(self, count: int, dtype: str = "u1", notifications: int = 256) -> Window:
        """Make one of our windows; collective."""
        return Window.allocate(count, dtype, comm=self.bootstrap, notifications=notifications)

    def _extent(self) -> int:
        return self.size + 4 * KIB if self.rank == TARGET else 4 * KIB

    def ours(self, kind: str) -> Window:
        """Return our window of a kind, in a shared lock of all ranks; collective at first."""
        if kind not in self._ours:
            if kind == ALLOCATED:
                window = self.window(self._extent())
            else:
                window = Window.create(self._own(kind), comm=self.bootstrap)
            window.local[:] = 0
            window.lock_all()
            self._ours[kind] = window
            self.comm.Barrier()
        return self._ours[kind]

    def _own(self, kind: str) -> npt.NDArray[np.uint8]:
        """Return the memory under windows that are created; ours and MPI's share it."""
        if kind not in self._memory:
            self._memory[kind] = np.zeros(self._extent(), np.uint8)
        return self._memory[kind]

    def theirs(self, kind: str) -> Any:  # noqa: ANN401
        """Return MPI's window of a kind, in a shared lock of all ranks; collective at first."""
        if kind not in self._theirs:
            win = self.their_window(kind, self._extent())
            win.Lock_all()  # a lock may need the target inside MPI: never while it sleeps
            self._theirs[kind] = win
            self._warm(win)
        return self._theirs[kind]

    def their_window(self, kind: str, size: int) -> Any:  # noqa: ANN401
        """Make a window of MPI's; collective."""
        window = self.mpi.Win
        if kind == CREATED:
            return window.Create(self._own(kind)[:size], 1, comm=self.comm)
        win = window.Allocate(size, 1, comm=self.comm)
        np.frombuffer(win.tomemory(), np.uint8)[:] = 0
        return win

    def _warm(self, win: Any) -> None:  # noqa: ANN401
        """Do each operation once while the target is inside MPI, which may connect on first use."""
        self.comm.Barrier()
        if self.is_origin:
            word, other, result = (np.zeros(1, "i8") for _ in range(3))
            win.Put(word, TARGET, 0)
            win.Get(word, TARGET, 0)
            win.Accumulate(word, TARGET, 0, self.mpi.SUM)
            win.Flush(TARGET)
            win.Fetch_and_op(word, result, TARGET, 0, self.mpi.SUM)
            win.Compare_and_swap(word, other, result, TARGET, 0)
            win.Flush(TARGET)
        self.comm.Barrier()

    def target_address(self, kind: str) -> int:
        """Return where the window's memory lies in the target; collective."""
        address: int = self.comm.bcast(self.ours(kind).local.ctypes.data, TARGET)
        return address

    # ------------------------------------------------------------------------ the target's state

    def at_origin(self, state: str, body: Callable[[], object]) -> None:
        """Run something at the origin while the target is in a state; collective.

        Parameters
        ----------
        state : str
            ``"asleep"``, ``"spinning"`` (in MPI, in Iprobe) or ``"computing"``.
        body : callable
            What the origin does.
        """
        target = {ASLEEP: self._sleep, COMPUTING: self._compute}.get(state, self._spin)
        self._apart(body, target)

    def together(self, body: Callable[[], object], loops: Mapping[str, Loop]) -> None:
        """Run something at the origin while the target follows its orders; collective.

        Parameters
        ----------
        body : callable
            What the origin does. `order` tells the target to do its part.
        loops : mapping of str to callable
            What the target does, by the name of the order.
        """
        self._apart(body, partial(self._follow, dict(loops)))

    def _apart(self, origin: Callable[[], object], target: Callable[[], object]) -> None:
        self._phase += 1
        self.comm.Barrier()
        error: Exception | None = None
        if self.is_origin:
            try:
                origin()
            except Exception as found:  # the target has to be released first
                error = found
            self._page[_END] = self._phase
        else:
            target()
        self.comm.Barrier()
        if error is not None:
            raise error

    def order(self, loops: Mapping[str, Loop], name: str) -> Guard:
        """Return what goes around a batch in which the target takes part with its own loop."""
        return partial(self._ordered, list(loops).index(name))

    @contextmanager
    def _ordered(self, number: int, times: int) -> Iterator[None]:
        page = self._page
        page[_NAME], page[_TIMES] = number, times
        order = int(page[_ORDER]) + 1
        page[_ORDER] = order
        while page[_TAKEN] != order:
            pass
        yield

    def _follow(self, loops: dict[str, Loop]) -> None:
        page, functions = self._page, list(loops.values())
        taken = int(page[_TAKEN])
        while not self._over():
            if page[_ORDER] == taken:
                continue
            taken += 1
            loop, times = functions[page[_NAME]], int(page[_TIMES])
            page[_TAKEN] = taken
            loop(times)

    def _over(self) -> bool:
        return bool(self._page[_END] >= self._phase)

    def _sleep(self) -> None:
        rescuer = _Rescuer(self)
        while not self._over():
            rescuer.look()
            time.sleep(_NAP)

    def _spin(self) -> None:
        probe = self.comm.Iprobe
        while not self._over():
            probe()

    def _compute(self) -> None:
        rescuer, page, number = _Rescuer(self), self._page, 1
        while not self._over():
            for _ in range(_STEPS):
                number = (number * 75 + 74) % 65537
            page[_WORK] += 1
            rescuer.look()

    def work_done(self) -> int:
        """Return how much the target has computed."""
        return int(self._page[_WORK])

    def guard(self, size: int = 0) -> Guard:
        """Return what goes around a batch of MPI operations: it raises `Stalled`.

        Parameters
        ----------
        size : int
            Bytes of one operation, which may take its time [bytes].
        """
        return partial(self._watched, int(self.bound * 1000), size / 200e3)

    @contextmanager
    def _watched(self, bound_ms: int, each_ms: float, times: int) -> Iterator[None]:
        page = self._page
        page[_LEAVE] = bound_ms + int(times * each_ms)
        page[_TURN] += 1
        try:
            yield
        finally:
            page[_TURN] += 1
        if page[_RESCUED] == page[_TURN] - 1:
            raise Stalled

    # ------------------------------------------------------------------------------------- end

    def close(self) -> None:
        """Free all windows; collective."""
        self.comm.Barrier()
        for win in self._theirs.values():
            win.Unlock_all()
            win.Free()
        for window in self._ours.values():
            window.unlock_all()
            window.free()
        self._page_window.free()


class _Rescuer:
    """Ends an MPI operation that waits for the target, by calling MPI there."""

    def __init__(self, session: Session) -> None:
        self._page, self._probe = session._page, session.comm.Iprobe
        self._turn, self._since = -1, 0.0

    def look(self) -> None:
        """Call MPI until the operation has completed, if it has been waiting for too long."""
        page = self._page
        turn = int(page[_TURN])
        if turn != self._turn:
            self._turn, self._since = turn, time.monotonic()
        if turn % 2 and time.monotonic() - self._since > page[_LEAVE] / 1000:
            page[_RESCUED] = turn
            while page[_TURN] == turn:
                self._probe()
