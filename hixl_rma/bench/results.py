# SPDX-License-Identifier: Apache-2.0
"""Measurements of single jobs, and the line of the table that several of them make.

Ratios come from one turn of one job each, where both sides ran within milliseconds of each other;
the ratio of a row is their median. Figures of different jobs are never divided by each other.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hixl_rma.bench.catalogue import Row
from hixl_rma.bench.goals import Figure, Verdict, judge

__all__ = ["Line", "Measurement", "failed", "merge", "percentile", "ratio"]

OURS, MPI, LIMIT, LIMIT2 = "ours", "mpi", "limit", "limit of 2 threads"


@dataclasses.dataclass
class Measurement:
    """What one job found for one row.

    Attributes
    ----------
    key : str
        Of the row.
    library : str
        The MPI library of the job.
    turns : dict of str to list of float
        For each side the figure of each turn, in the row's unit.
    singles : dict of str to list of float
        For each side the times of single operations.
    stalled : bool
        Whether MPI waited for the target to call MPI, which was ended after a bounded time.
    again : bool
        Whether the row missed its goal at first and was measured once more with more turns.
    note : str
        What else there is to say; the error where the row could not be measured.
    """

    key: str
    library: str = ""
    turns: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    singles: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    stalled: bool = False
    again: bool = False
    note: str = ""

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Measurement:
        """Return what `dataclasses.asdict` made JSON of."""
        return cls(**fields)


@dataclasses.dataclass(frozen=True)
class Line:
    """One row with its figures; None where there is none."""

    row: Row
    verdict: Verdict
    ours: float | None = None
    p99: float | None = None
    mpi: float | None = None
    mpi_p99: float | None = None
    mpi_name: str = ""
    limit: float | None = None
    ratio_mpi: float | None = None
    ratio_limit: float | None = None
    ratio_limit2: float | None = None
    turns: int = 0
    again: bool = False
    note: str = ""

    def as_json(self) -> dict[str, object]:
        """Return the line as JSON takes it."""
        numbers = {
            name: None if value is None or not math.isfinite(value) else round(value, 4)
            for name, value in (
                ("ours", self.ours),
                ("ours_p99", self.p99),
                ("mpi", self.mpi),
                ("mpi_p99", self.mpi_p99),
                ("limit", self.limit),
                ("times_as_fast_as_mpi", self.ratio_mpi),
                ("share_of_limit", self.ratio_limit),
                ("share_of_limit_of_2_threads", self.ratio_limit2),
            )
        }
        return {
            "row": self.row.key,
            "name": self.row.name,
            "window": self.row.window,
            "bytes": self.row.size,
            "target": self.row.state,
            "unit": self.row.unit,
            **numbers,
            "best_mpi": self.mpi_name,
            "mpi_stalls": self.ratio_mpi == math.inf,
            "turns": self.turns,
            "measured_again": self.again,
            "goal": self.row.goal_text,
            "verdict": self.verdict.value,
            "note": self.note,
        }


def percentile(samples: Sequence[float], share: float) -> float:
    """Return the smallest sample that at least a share of them do not exceed."""
    return sorted(samples)[max(0, math.ceil(len(samples) * share) - 1)]


def ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float | None:
    """Return the median of the ratios turn by turn; None without turns."""
    ratios = [
        above / below for above, below in zip(numerators, denominators, strict=False) if below > 0
    ]
    return statistics.median(ratios) if ratios else None


def _median(samples: Sequence[float]) -> float | None:
    return statistics.median(samples) if samples else None


def _p99(samples: Sequence[float]) -> float | None:
    return percentile(samples, 0.99) if samples else None


def _pooled(measurements: Iterable[Measurement], side: str) -> list[float]:
    return [value for found in measurements for value in found.turns.get(side, [])]


def _pooled_ratio(measurements: Iterable[Measurement], side: str) -> float | None:
    above: list[float] = []
    below: list[float] = []
    for found in measurements:
        pairs = list(zip(found.turns.get(side, []), found.turns.get(OURS, []), strict=False))
        above += [pair[0] for pair in pairs]
        below += [pair[1] for pair in pairs]
    return ratio(above, below)


def _best_mpi(measurements: Sequence[Measurement]) -> Measurement | None:
    """Return the measurement whose MPI did best against us, turn by turn; one that stalls last."""
    candidates: list[tuple[float, Measurement]] = []
    for found in measurements:
        against = math.inf if found.stalled else _pooled_ratio([found], MPI)
        if against is not None:
            candidates.append((against, found))
    return min(candidates, key=lambda pair: pair[0])[1] if candidates else None


def merge(row: Row, measurements: Sequence[Measurement]) -> Line:
    """Make one line of what the jobs of several MPI libraries found for a row.

    Parameters
    ----------
    row : Row
        The row.
    measurements : sequence of Measurement
        Any number; those of other rows are left aside.

    Returns
    -------
    Line
        Our figures and the shares of limits over the turns of all jobs. The best MPI is the one
        that did best against us in the turns of its own job.
    """
    own = [found for found in measurements if found.key == row.key]
    notes = [row.absent] if row.absent else list(dict.fromkeys(m.note for m in own if m.note))
    ours = _pooled(own, OURS)
    singles = [value for found in own for value in found.singles.get(OURS, [])]
    best = _best_mpi(own)
    stalls = best is not None and best.stalled
    ratio_mpi = None
    if best is not None:
        ratio_mpi = math.inf if stalls else _pooled_ratio([best], MPI)
    figures = {
        Figure.MEDIAN: _median(ours),
        Figure.P99: _p99(singles or ours),
        Figure.MPI: ratio_mpi if ours else None,
        Figure.LIMIT: _pooled_ratio(own, LIMIT),
    }
    mpi = best.turns.get(MPI, []) if best is not None and not stalls else []
    mpi_singles = best.singles.get(MPI, mpi) if best is not None and not stalls else []
    return Line(
        row=row,
        verdict=Verdict.NOT_MEASURED if row.absent else judge(row.goal, figures),
        ours=figures[Figure.MEDIAN],
        p99=figures[Figure.P99],
        mpi=_median(mpi),
        mpi_p99=_p99(mpi_singles),
        mpi_name=best.library if best is not None else "",
        limit=_median(_pooled(own, LIMIT)),
        ratio_mpi=figures[Figure.MPI],
        ratio_limit=figures[Figure.LIMIT],
        ratio_limit2=_pooled_ratio(own, LIMIT2),
        turns=len(ours),
        again=any(found.again for found in own),
        note="; ".join(notes),
    )


def failed(lines: Iterable[Line]) -> list[Line]:
    """Return the lines that keep the exit status from being 0.

    That is each with a goal that is missed, and each with a goal that should have been measured
    and was not; what this version cannot do at all does not count.
    """
    bad = (Verdict.MISSED, Verdict.NOT_MEASURED)
    return [
        line
        for line in lines
        if line.row.goal is not None and not line.row.absent and line.verdict in bad
    ]
