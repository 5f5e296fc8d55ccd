# SPDX-License-Identifier: Apache-2.0
"""Requests: how soon a large one returns, and how much of it happens while Python computes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from hixl_rma.bench.catalogue import Row
from hixl_rma.bench.session import TARGET, Session
from hixl_rma.bench.timing import Effort, Samples, Stalled

__all__ = ["hidden", "until_it_returns"]

_Start = Callable[[], Callable[[], Any]]  # starts a transfer and returns what waits for its end


def _starts(session: Session, row: Row) -> dict[str, _Start]:
    win, theirs = session.ours(row.window), session.theirs(row.window)
    origin = session.origin[: row.size]

    def ours() -> Callable[[], Any]:
        return win.rput(origin, TARGET, 0).wait

    def mpi() -> Callable[[], Any]:
        request = theirs.Rput([origin, row.size, session.mpi.BYTE], TARGET, 0)

        def finish() -> None:
            request.Wait()
            theirs.Flush(TARGET)

        return finish

    return {"ours": ours, "mpi": mpi}


def _turns(
    session: Session, row: Row, effort: Effort, figure: Callable[[_Start], float]
) -> Samples | None:
    starts = _starts(session, row)
    samples = Samples()

    def body() -> None:
        for start in starts.values():  # warm
            figure(start)
        end = time.monotonic() + 2 * effort.seconds
        while len(samples.turns.get("ours", [])) < effort.fewest or time.monotonic() < end:
            for name, start in starts.items():
                if name in samples.stalled:
                    continue
                try:
                    with session.guard(4 * row.size)(1):
                        samples.turns.setdefault(name, []).append(figure(start))
                except Stalled:
                    samples.stalled.add(name)
                    del samples.turns[name]

    session.at_origin(row.state, body)
    return samples if session.is_origin else None


def until_it_returns(session: Session, row: Row, effort: Effort) -> Samples | None:
    """Measure the call alone, in microseconds."""

    def figure(start: _Start) -> float:
        begin = time.perf_counter_ns()
        finish = start()
        returned = time.perf_counter_ns()
        finish()
        return (returned - begin) / 1000

    return _turns(session, row, effort, figure)


def _compute(steps: int) -> float:
    """Compute in Python, so many steps; return how long it took [s]."""
    start, number = time.perf_counter(), 1
    for _ in range(steps):
        number = (number * 75 + 74) % 65537
    return time.perf_counter() - start


def hidden(session: Session, row: Row, effort: Effort) -> Samples | None:
    """Measure the share of a transfer that costs nothing beside computing of the same length.

    Nothing of it is hidden when start, computing and wait take as long as the one after the other;
    all of it when they take no longer than the computing.
    """
    step_s = _compute(20_000) / 20_000

    def figure(start: _Start) -> float:
        begin = time.perf_counter()
        start()()
        alone = time.perf_counter() - begin
        steps = int(1.5 * alone / step_s)
        computed = _compute(steps)
        begin = time.perf_counter()
        finish = start()
        _compute(steps)
        finish()
        both = time.perf_counter() - begin
        return 100 * min(1.0, max(0.0, (alone + computed - both) / alone))

    return _turns(session, row, effort, figure)
