# SPDX-License-Identifier: Apache-2.0
"""What a row has to reach, and whether it did.

A goal is one or more conditions. Each compares one figure of a row with a bound: the median, the
99th percentile, how many times as fast as the best MPI, or the share of the limit reached.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Mapping

__all__ = ["Condition", "Figure", "Goal", "Verdict", "at_least", "at_most", "judge"]


class Figure(enum.Enum):
    """What a condition looks at."""

    MEDIAN = "median"
    P99 = "p99"
    MPI = "x MPI"
    LIMIT = "of limit"


class Verdict(enum.Enum):
    """How a row compares with its goal."""

    MET = "met"
    AT_LIMIT = "at the limit"
    MISSED = "missed"
    NOT_MEASURED = "not measured"
    NO_GOAL = ""


@dataclasses.dataclass(frozen=True)
class Condition:
    """One comparison.

    Attributes
    ----------
    figure : Figure
        What is compared.
    most : bool
        Whether the bound is the most allowed, else it is the least.
    bound : float
        The bound, itself allowed; in the row's unit, or a ratio.
    """

    figure: Figure
    most: bool
    bound: float

    def holds(self, value: float) -> bool:
        """Return whether a value satisfies it; one that is no number does not."""
        return value <= self.bound if self.most else value >= self.bound

    def text(self, unit: str) -> str:
        """Return it as people write it, such as ``<= 0.4 us``."""
        number = f"{'<=' if self.most else '>='} {self.bound:.6g}"
        if self.figure is Figure.MEDIAN:
            return f"{number} {unit}"
        if self.figure is Figure.P99:
            return f"p99 {number} {unit}"
        return f"{number} {self.figure.value}"


@dataclasses.dataclass(frozen=True)
class Goal:
    """Conditions that have to hold together."""

    conditions: tuple[Condition, ...]

    def __and__(self, other: Goal) -> Goal:
        """Join two goals."""
        return Goal(self.conditions + other.conditions)

    def text(self, unit: str) -> str:
        """Return it as people write it."""
        return ", ".join(condition.text(unit) for condition in self.conditions)


def at_most(bound: float, figure: Figure = Figure.MEDIAN) -> Goal:
    """Return the goal that a figure is no more than a bound."""
    return Goal((Condition(figure, True, bound),))


def at_least(bound: float, figure: Figure) -> Goal:
    """Return the goal that a figure is no less than a bound."""
    return Goal((Condition(figure, False, bound),))


def judge(goal: Goal | None, figures: Mapping[Figure, float | None]) -> Verdict:
    """Compare a row with its goal.

    Parameters
    ----------
    goal : Goal or None
        What it has to reach.
    figures : mapping of Figure to float or None
        What was measured; None, and a figure that is absent, was not. Infinity for `Figure.MPI`
        means that MPI stalled.

    Returns
    -------
    Verdict
        A condition that fails decides, whatever was not measured. Where MPI itself is so near the
        limit that the limit does not beat it by what is asked, and we reach the share of the limit
        that is asked, the row is at the limit.
    """
    if goal is None:
        return Verdict.NO_GOAL
    values = [(condition, figures.get(condition.figure)) for condition in goal.conditions]
    fails = [c for c, value in values if value is not None and not c.holds(value)]
    if fails:
        return Verdict.AT_LIMIT if _past_limit(goal, fails, figures) else Verdict.MISSED
    if any(value is None or math.isnan(value) for _, value in values):
        return Verdict.NOT_MEASURED
    return Verdict.MET


def _past_limit(goal: Goal, fails: list[Condition], figures: Mapping[Figure, float | None]) -> bool:
    """Return whether all that fails asks for more than the limit, measured beside it, allows."""
    near = any(condition.figure is Figure.LIMIT for condition in goal.conditions)
    ours, of_limit = figures.get(Figure.MPI), figures.get(Figure.LIMIT)
    if not near or ours is None or of_limit is None:
        return False
    return all(c.figure is Figure.MPI and not c.holds(ours / of_limit) for c in fails)
