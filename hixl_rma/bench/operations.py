# SPDX-License-Identifier: Apache-2.0
"""Atomics and accumulates, and every operation on a target that takes no part."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from itertools import repeat
from typing import Any

import numpy as np

from hixl_rma.bench import limits
from hixl_rma.bench.catalogue import ALLOCATED, CREATED, Row
from hixl_rma.bench.session import TARGET, Session
from hixl_rma.bench.synchronisation import lock_windows
from hixl_rma.bench.timing import Effort, Loop, Samples, Side, each, take_turns

__all__ = ["accumulate", "atomic", "passive"]

_PLACES = 16  # that accumulates go to in turn
_PLACE = 64  # of the word that atomics change [bytes]
_ID = 9  # of the notifications that nobody waits for


def _our_loop(session: Session, name: str, window: str, numbers: Any, place: int = 0) -> Loop:  # noqa: ANN401
    """Return a loop over one of our operations and its flush."""
    size = numbers.nbytes
    win = session.ours(window)
    calls: dict[str, tuple[Any, ...]] = {
        "put": (win.put, session.origin[:size], TARGET, 0),
        "get": (win.get, session.origin[:size], TARGET, 0),
        "accumulate": (win.accumulate, numbers, TARGET, place),
        "fetch_and_op": (win.fetch_and_op, _word(1), _word(), TARGET, _PLACE),
        "compare_and_swap": (win.compare_and_swap, _word(), _word(), _word(), TARGET, _PLACE),
        "put_notify": (_notifying(win.put_notify), session.origin[:size], TARGET, 0),
    }
    return each(*calls[name], then=win.flush, rank=TARGET)


def _notifying(put_notify: Callable[..., None]) -> Callable[..., None]:
    return lambda *arguments: put_notify(*arguments, notification=_ID)


def _word(value: int = 0) -> Any:  # noqa: ANN401 - either library takes it as a buffer
    return np.full(1, value, "i8")


def _their_loop(
    session: Session,
    name: str,
    window: str,
    numbers: Any,  # noqa: ANN401
    place: int = 0,
) -> Loop | None:
    """Return a loop over the same of MPI's; None where it has none."""
    size = numbers.nbytes
    win, mpi = session.theirs(window), session.mpi
    data, there = [session.origin[:size], size, mpi.BYTE], (0, size, mpi.BYTE)
    doubles = [numbers, size // 8, mpi.DOUBLE]
    calls: dict[str, tuple[Any, ...]] = {
        "put": (win.Put, data, TARGET, there),
        "get": (win.Get, data, TARGET, there),
        "accumulate": (win.Accumulate, doubles, TARGET, (place, size // 8, mpi.DOUBLE), mpi.SUM),
        "fetch_and_op": (win.Fetch_and_op, _word(1), _word(), TARGET, _PLACE, mpi.SUM),
        "compare_and_swap": (win.Compare_and_swap, _word(), _word(), _word(), TARGET, _PLACE),
    }
    return each(*calls[name], then=win.Flush, rank=TARGET) if name in calls else None


def _limit(
    session: Session,
    row: Row,
    numbers: Any,  # noqa: ANN401
    address: int,
    place: int,
) -> Loop | None:
    """Return what the memory allows; None where nothing is compared."""
    if row.scenario == "accumulate" and row.window == ALLOCATED:
        target = session.ours(ALLOCATED).remote(TARGET)[place : place + row.size].view(np.float64)

        def add(times: int) -> None:
            for _ in repeat(None, times):
                np.add(target, numbers, out=target)

        return add
    if row.scenario in ("fetch_and_op", "compare_and_swap") and row.window == CREATED:
        origin = session.origin[: row.size]
        pid = session.pids[TARGET]
        return limits.CrossProcess(pid, address + _PLACE, origin, read=False).loop()
    return None


def _sides(
    session: Session,
    row: Row,
    name: str,
    numbers: Any,  # noqa: ANN401
    address: int,
    place: int,
) -> dict[str, Side]:
    """Return all sides that change a place of the target's memory."""
    sides = {"ours": Side(_our_loop(session, name, row.window, numbers, place))}
    theirs = _their_loop(session, name, row.window, numbers, place)
    if theirs is not None:
        sides["mpi"] = Side(theirs, session.guard(row.size))
    limit = _limit(session, row, numbers, address, place)
    if limit is not None:
        sides["limit"] = Side(limit)
    return sides


def _measure(session: Session, row: Row, name: str, effort: Effort) -> Samples | None:
    address = session.target_address(row.window)
    session.theirs(row.window)
    found: list[Samples] = []

    def body() -> None:
        # One array for all sides: which places of a cache it falls on is a matter of luck.
        numbers = np.ones(row.size // 8)
        places = range(0, session.size - row.size + 1, row.size)[:_PLACES]
        sides, *elsewhere = (_sides(session, row, name, numbers, address, p) for p in places)
        found.append(take_turns(sides, effort, elsewhere))

    session.at_origin(row.state, body)
    return found[0] if found else None


def atomic(session: Session, row: Row, effort: Effort) -> Samples | None:
    """Measure fetch_and_op or compare_and_swap; created windows beside one process_vm_writev."""
    return _measure(session, row, row.scenario, effort)


def accumulate(session: Session, row: Row, effort: Effort) -> Samples | None:
    """Measure an accumulate of doubles; allocated windows beside numpy's sum in place."""
    return _measure(session, row, "accumulate", effort)


def passive(session: Session, row: Row, effort: Effort) -> Samples | None:
    """Measure single operations, each timed alone, on a target that takes no part."""
    effort = dataclasses.replace(effort, turn_us=0.0, fewest=20 * effort.fewest, most=10**4)
    name = row.scenario.removeprefix("passive ")
    if name.startswith("lock"):
        with lock_windows(session, row.window) as sides:
            return sides.measure(row.state, name.endswith("exclusive"), effort)
    return _measure(session, row, name, effort)
