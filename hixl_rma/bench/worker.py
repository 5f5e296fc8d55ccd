# SPDX-License-Identifier: Apache-2.0
"""The program of the ranks: measure row after row, and the missed ones once more."""

from __future__ import annotations

import dataclasses
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from hixl_rma.bench.catalogue import CROWD, PAIR, Row
from hixl_rma.bench.crowd import Crowd
from hixl_rma.bench.goals import Verdict
from hixl_rma.bench.results import MPI, Measurement, merge
from hixl_rma.bench.scenarios import SCENARIOS
from hixl_rma.bench.session import Session
from hixl_rma.bench.timing import Effort, Samples

__all__ = ["Take", "library_name", "measure", "world"]

Take = Callable[[Measurement], None]
"""Receives each measurement as soon as there is one."""

_NAP_S = 0.01
_MOST_SINGLES = 4000


def world() -> Any:  # noqa: ANN401
    """Return ``mpi4py.MPI``, which initializes MPI."""
    from mpi4py import MPI

    return MPI


def library_name(text: str) -> str:
    """Return name and version from what ``MPI_Get_library_version`` says."""
    words = text.replace(",", " ").split()
    if text.startswith("Open MPI"):
        return f"Open MPI {words[2].lstrip('v')}"
    if text.startswith("MPICH"):
        return f"MPICH {words[2]}"
    return " ".join(words[:3])


def measure(rows: Sequence[Row], max_size: int, effort: Effort, take: Take) -> bool:
    """Measure rows between the first ranks of the world, as many as each takes; collective.

    Parameters
    ----------
    rows : sequence of Row
        The same at all ranks.
    max_size : int
        Most bytes of one operation [bytes].
    effort : Effort
        How long a row is measured.
    take : callable
        Receives the measurements at rank 0; a row measured again comes a second time.

    Returns
    -------
    bool
        Whether this is the rank that has received them.
    """
    mpi = world()
    everybody = mpi.COMM_WORLD
    if everybody.size < PAIR:
        msg = "the benchmark takes two ranks"
        raise ValueError(msg)
    parts = ((PAIR, _measure_pair), (CROWD, _measure_crowd))
    try:
        for size, part in parts:
            mine = [row for row in rows if row.ranks == size and not row.absent]
            if not mine or everybody.size < size:
                continue
            group = everybody.Split(0 if everybody.rank < size else mpi.UNDEFINED)
            if group != mpi.COMM_NULL:
                part(mpi, group, mine, max_size, effort, take)
            _meet(everybody)
    except BaseException:  # the others would wait for ever
        traceback.print_exc()
        sys.stderr.flush()
        everybody.Abort(3)
        raise
    return bool(everybody.rank == 0)


def _meet(everybody: Any) -> None:  # noqa: ANN401
    over = everybody.Ibarrier()
    while not over.Test():  # ranks that are not needed leave the processors to the others
        time.sleep(_NAP_S)


def _measure_pair(
    mpi: Any,  # noqa: ANN401
    pair: Any,  # noqa: ANN401
    rows: Sequence[Row],
    max_size: int,
    effort: Effort,
    take: Take,
) -> None:
    library = library_name(mpi.Get_library_version())
    session = Session(mpi, pair, max_size, effort)
    missed = [row for row in rows if _one(session, row, effort, library, False, take)]
    for row in missed:
        _one(session, row, effort.more(), library, True, take)
    session.close()


def _measure_crowd(
    mpi: Any,  # noqa: ANN401
    comm: Any,  # noqa: ANN401
    rows: Sequence[Row],
    max_size: int,  # noqa: ARG001
    effort: Effort,
    take: Take,
) -> None:
    library = library_name(mpi.Get_library_version())
    crowd = Crowd(mpi, comm)

    def missed(row: Row, effort: Effort, *, again: bool) -> bool:
        samples = crowd.measure(row, effort)
        found = Measurement(row.key, library, again=again, turns=samples.turns)
        if comm.rank == 0:
            take(found)
        return bool(comm.bcast(merge(row, [found]).verdict is Verdict.MISSED, 0))

    for row in [row for row in rows if missed(row, effort, again=False)]:
        missed(row, effort.more(), again=True)
    crowd.close()


def _one(session: Session, row: Row, effort: Effort, library: str, again: bool, take: Take) -> bool:
    """Measure a row; return at both ranks whether it missed its goal."""
    samples: Samples | None = None
    note = ""
    try:
        samples = SCENARIOS[row.scenario](session, row, effort)
    except (ArithmeticError, LookupError, OSError, RuntimeError, ValueError, MemoryError) as error:
        if not session.is_origin:
            raise
        note = f"{type(error).__name__}: {error}"
    missed = False
    if session.is_origin:
        found = Measurement(row.key, library, again=again, note=note)
        if samples is not None:
            found.turns = samples.turns
            found.singles = {
                name: thinned(times, _MOST_SINGLES) for name, times in samples.singles.items()
            }
            found.stalled = MPI in samples.stalled
        take(found)
        missed = merge(row, [found]).verdict is Verdict.MISSED
    return bool(session.comm.bcast(missed, 0))


def thinned(times: list[float], most: int) -> list[float]:
    """Return at most so many of the times, evenly from all of them."""
    step = -(-len(times) // most)
    return times[::step] if step > 1 else times


def as_fields(found: Measurement) -> dict[str, object]:
    """Return a measurement as JSON takes it."""
    fields = dataclasses.asdict(found)
    for name in ("turns", "singles"):
        fields[name] = {
            side: [round(value, 4) for value in values] for side, values in fields[name].items()
        }
    return fields
