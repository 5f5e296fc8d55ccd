# SPDX-License-Identifier: Apache-2.0
"""Fences, and locks that nobody else wants."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import repeat
from typing import Any

import numpy as np

from hixl_rma.bench.catalogue import ALLOCATED, KIB, Row
from hixl_rma.bench.session import TARGET, Session
from hixl_rma.bench.timing import Effort, Loop, Samples, Side, take_turns
from hixl_rma.window import NOSUCCEED, Window

__all__ = ["LockWindows", "fence", "lock", "lock_windows"]

_SIZE = 4 * KIB


class LockWindows:
    """Windows of both sides on which no lock is held."""

    def __init__(self, session: Session, ours: Window, theirs: Any) -> None:  # noqa: ANN401
        self._session, self._ours, self._theirs = session, ours, theirs

    def _our_loop(self, exclusive: bool) -> Loop:
        lock, unlock = self._ours.lock, self._ours.unlock

        def loop(times: int) -> None:
            for _ in repeat(None, times):
                lock(TARGET, exclusive=exclusive)
                unlock(TARGET)

        return loop

    def _their_loop(self, exclusive: bool) -> Loop:
        lock, unlock = self._theirs.Lock, self._theirs.Unlock
        mpi = self._session.mpi
        kind = mpi.LOCK_EXCLUSIVE if exclusive else mpi.LOCK_SHARED

        def loop(times: int) -> None:
            for _ in repeat(None, times):
                lock(TARGET, kind)
                unlock(TARGET)

        return loop

    def measure(self, state: str, exclusive: bool, effort: Effort) -> Samples | None:
        """Measure lock + unlock of the target; collective."""
        found: list[Samples] = []

        def body() -> None:
            sides = {
                "ours": Side(self._our_loop(exclusive)),
                "mpi": Side(self._their_loop(exclusive), self._session.guard()),
            }
            found.append(take_turns(sides, effort))

        self._session.at_origin(state, body)
        return found[0] if found else None


@contextlib.contextmanager
def lock_windows(session: Session, kind: str) -> Iterator[LockWindows]:
    """Make windows for a while; collective."""
    if kind == ALLOCATED:
        ours = session.window(_SIZE)
    else:
        ours = Window.create(np.zeros(_SIZE, np.uint8), comm=session.bootstrap)
    theirs = session.their_window(kind, _SIZE)
    try:
        yield LockWindows(session, ours, theirs)
    finally:
        ours.free()
        theirs.Free()


def lock(session: Session, row: Row, effort: Effort) -> Samples | None:
    """Measure lock + unlock, exclusive or shared."""
    with lock_windows(session, row.window) as windows:
        return windows.measure(row.state, row.scenario.endswith("exclusive"), effort)


def fence(session: Session, row: Row, effort: Effort) -> Samples | None:  # noqa: ARG001
    """Measure fences of both ranks."""
    ours = session.window(_SIZE)
    theirs = session.their_window(ALLOCATED, _SIZE)

    def our_loop(times: int) -> None:
        for _ in repeat(None, times):
            ours.fence()

    def their_loop(times: int) -> None:
        for _ in repeat(None, times):
            theirs.Fence()

    loops: dict[str, Loop] = {"ours": our_loop, "mpi": their_loop}
    found: list[Samples] = []

    def body() -> None:
        sides = {name: Side(loop, session.order(loops, name)) for name, loop in loops.items()}
        found.append(take_turns(sides, effort))

    session.together(body, loops)
    ours.fence(NOSUCCEED)
    theirs.Fence(session.mpi.MODE_NOSUCCEED)
    ours.free()
    theirs.Free()
    return found[0] if found else None
