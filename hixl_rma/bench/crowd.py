# SPDX-License-Identifier: Apache-2.0
"""More ranks than processors: all of them synchronise, and what they computed is exact.

Every rank takes part in every turn; a turn lasts from one barrier of MPI to the next. The sums are
looked at after each turn: a figure of a wrong result would be worth nothing.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from hixl_rma.bench.catalogue import Row
from hixl_rma.bench.timing import Effort, Loop, Samples
from hixl_rma.bootstrap import MpiBootstrap
from hixl_rma.window import NOSUCCEED, Window

__all__ = ["SCENARIOS", "Crowd"]

_COUNTED = 0  # element that the locks guard
_SUMS = slice(8, 1032)  # elements that everybody adds to
_NOTE = 1
_PATIENCE_S = 60.0
_ROUNDS = {"fences": 20, "locks": 10, "accumulates": 20, "notifications": 5}


_Call = Callable[..., object]


@dataclasses.dataclass(frozen=True)
class _Side:
    """What one side does in a turn, and what it left at rank 0 afterwards."""

    loop: Loop
    exact: Callable[[int], bool] = lambda _: True


class Crowd:
    """One rank of many.

    Parameters
    ----------
    mpi : module
        ``mpi4py.MPI``.
    comm : mpi4py.MPI.Intracomm
        Of all ranks that take part.
    """

    def __init__(self, mpi: Any, comm: Any) -> None:  # noqa: ANN401
        self.mpi, self.comm = mpi, comm
        self.rank, self.size = int(comm.rank), int(comm.size)
        self._ours = Window.allocate(2048, "f8", comm=MpiBootstrap(comm))
        self._theirs = mpi.Win.Allocate(2048 * 8, 8, comm=comm)
        self._memory = np.frombuffer(self._theirs.tomemory(), np.float64)
        self._one, self._many = np.zeros(1), np.ones(_SUMS.stop - _SUMS.start)

    def close(self) -> None:
        """Free the windows; collective."""
        self._theirs.Free()
        self._ours.free()

    def measure(self, row: Row, effort: Effort) -> Samples:
        """Take turns; collective. Every rank returns what it saw."""
        sides = SCENARIOS[row.scenario](self)
        rounds = _ROUNDS[row.scenario]
        samples = Samples()
        for side in sides.values():  # warm
            self._turn(side, 1)
        end = time.monotonic() + effort.seconds * len(sides) * 2
        for turn in range(effort.most):
            if not self.comm.bcast(turn < effort.fewest or time.monotonic() < end, 0):
                break
            names = list(sides)
            start = turn % len(names)
            for name in names[start:] + names[:start]:
                samples.turns.setdefault(name, []).append(self._turn(sides[name], rounds))
        self._ours.fence(NOSUCCEED)
        self._theirs.Fence(self.mpi.MODE_NOSUCCEED)
        return samples

    def _turn(self, side: _Side, rounds: int) -> float:
        """Return the microseconds of a round."""
        self._ours.local[:] = 0
        self._memory[:] = 0
        self.comm.Barrier()
        start = time.perf_counter_ns()
        side.loop(rounds)
        self.comm.Barrier()
        each_us = (time.perf_counter_ns() - start) / rounds / 1000
        if self.rank == 0 and not side.exact(rounds):
            msg = "a sum came out wrong"
            raise ArithmeticError(msg)
        return each_us

    # ---------------------------------------------------------------------------------- the loops

    def fences(self) -> dict[str, _Side]:
        """Return both sides of a fence of all ranks."""

        def over(fence: _Call) -> Loop:
            def loop(rounds: int) -> None:
                for _ in range(rounds):
                    fence()

            return loop

        return {"ours": _Side(over(self._ours.fence)), "mpi": _Side(over(self._theirs.Fence))}

    def locks(self) -> dict[str, _Side]:
        """Return both sides of counting at rank 0 under an exclusive lock."""
        value = self._one

        def over(lock: _Call, get: _Call, flush: _Call, put: _Call, unlock: _Call) -> Loop:
            def loop(rounds: int) -> None:
                for _ in range(rounds):
                    lock(0)
                    get(value, 0, _COUNTED)
                    flush(0)
                    value[0] += 1
                    put(value, 0, _COUNTED)
                    unlock(0)

            return loop

        ours, mpi = self._ours, self._theirs
        return {
            "ours": _Side(
                over(ours.lock, ours.get, ours.flush, ours.put, ours.unlock),
                lambda n: ours.local[_COUNTED] == n * self.size,
            ),
            "mpi": _Side(
                over(mpi.Lock, mpi.Get, mpi.Flush, mpi.Put, mpi.Unlock),
                lambda n: self._memory[_COUNTED] == n * self.size,
            ),
        }

    def accumulates(self) -> dict[str, _Side]:
        """Return both sides of adding 8 KiB of doubles at rank 0."""
        values = self._many

        def over(lock_all: _Call, accumulate: _Call, flush: _Call, unlock_all: _Call) -> Loop:
            def loop(rounds: int) -> None:
                lock_all()
                for _ in range(rounds):
                    accumulate(values, 0, _SUMS.start)
                    flush(0)
                unlock_all()

            return loop

        ours, mpi = self._ours, self._theirs
        add = partial(mpi.Accumulate, op=self.mpi.SUM)
        return {
            "ours": _Side(
                over(ours.lock_all, ours.accumulate, ours.flush, ours.unlock_all),
                lambda n: bool((ours.local[_SUMS] == n * self.size).all()),
            ),
            "mpi": _Side(
                over(mpi.Lock_all, add, mpi.Flush, mpi.Unlock_all),
                lambda n: bool((self._memory[_SUMS] == n * self.size).all()),
            ),
        }

    def notifications(self) -> dict[str, _Side]:
        """Return both sides of a token that goes round: notifications, and messages."""
        right, left = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        comm, token = self.comm, self._one

        def ours(rounds: int) -> None:
            win = self._ours
            with win.lock_all():
                for _ in range(rounds):
                    if self.rank == 0:
                        win.notify(right, notification=_NOTE)
                    win.wait_notify(_NOTE, source=left, timeout=_PATIENCE_S)
                    if self.rank != 0:
                        win.notify(right, notification=_NOTE)

        def mpi(rounds: int) -> None:
            for _ in range(rounds):
                if self.rank == 0:
                    comm.Send(token, right)
                comm.Recv(token, left)
                if self.rank != 0:
                    comm.Send(token, right)

        return {"ours": _Side(ours), "mpi": _Side(mpi)}


SCENARIOS: Mapping[str, Callable[[Crowd], dict[str, _Side]]] = {
    "fences": Crowd.fences,
    "locks": Crowd.locks,
    "accumulates": Crowd.accumulates,
    "notifications": Crowd.notifications,
}
"""By the scenario of a row."""
