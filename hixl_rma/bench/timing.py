# SPDX-License-Identifier: Apache-2.0
"""Turns: each side runs a batch of its operations, then the next one, again and again.

A machine drifts, within seconds, by more than what is compared. What two sides do within one turn
saw the same machine, so the ratio is taken there. Each turn begins with another side, and no batch
begins before one operation that is not timed: what a neighbour left in the caches, or took from
them to another core, is nobody's merit and nobody's fault.
"""

from __future__ import annotations

import dataclasses
import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import repeat
from typing import Any

__all__ = ["Effort", "Guard", "Loop", "Samples", "Side", "Stalled", "each", "take_turns"]

Loop = Callable[[int], object]
"""Performs an operation so many times."""
Guard = Callable[[int], AbstractContextManager[None]]
"""Makes a context around a batch of so many operations; not timed."""

_SINGLES = 20  # operations timed one by one in a turn, beside its batch
_BATCH = 400
_WARM_UPS = 16  # a library may learn from the first operations of a size how it is done best
_WARM_UP_S = 2.0


def _unguarded(_: int) -> AbstractContextManager[None]:
    return nullcontext()


class Stalled(Exception):
    """The operation did not complete until the target was made to call MPI."""


@dataclasses.dataclass(frozen=True)
class Effort:
    """How long a row is measured.

    Attributes
    ----------
    seconds : float
        For each side [s]; exceeded when the fewest turns take longer.
    fewest, most : int
        Turns.
    turn_us : float
        How long a batch should take [us].
    """

    seconds: float = 0.2
    fewest: int = 9
    most: int = 120
    turn_us: float = 500.0

    def more(self) -> Effort:
        """Return the effort for a row that missed its goal at first."""
        return dataclasses.replace(
            self, seconds=3 * self.seconds, fewest=2 * self.fewest + 1, most=3 * self.most
        )


@dataclasses.dataclass(frozen=True)
class Side:
    """One of those that are compared.

    Attributes
    ----------
    loop : callable
        Performs the operation so many times.
    guard : callable
        Makes a context around a batch of so many operations. It tells the other rank what to do,
        where both take part, and raises `Stalled` when the operation stalled.
    share : float
        Of a time measured, what counts: 0.5 for a round trip of which one way is wanted.
    """

    loop: Loop
    guard: Guard = _unguarded
    share: float = 1.0


@dataclasses.dataclass
class Samples:
    """Microseconds of an operation: the mean of each batch, and of single operations."""

    turns: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    singles: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    stalled: set[str] = dataclasses.field(default_factory=set)


def each(
    operation: Callable[..., Any],
    *arguments: Any,  # noqa: ANN401
    then: Callable[..., Any],
    rank: int,
) -> Loop:
    """Return a loop over an operation and what completes it at a rank."""

    def loop(times: int) -> None:
        for _ in repeat(None, times):
            operation(*arguments)
            then(rank)

    return loop


def batch_us(side: Side, times: int) -> float:
    """Return the microseconds of one operation, over a batch."""
    with side.guard(times):
        start = time.perf_counter_ns()
        side.loop(times)
        end = time.perf_counter_ns()
    return (end - start) / times / 1000 * side.share


def _batch_size(side: Side, effort: Effort) -> int:
    """Warm a side up and return how many operations make a turn."""
    end = time.monotonic() + _WARM_UP_S
    for _ in range(_WARM_UPS):
        batch_us(side, 1)
        if time.monotonic() > end:
            break
    once = statistics.median(batch_us(side, 1) for _ in range(3)) / side.share
    return max(1, min(_BATCH, int(effort.turn_us / max(once, 0.05))))


@contextmanager
def _collector_paused() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def take_turns(
    sides: Mapping[str, Side], effort: Effort, elsewhere: Sequence[Mapping[str, Side]] = ()
) -> Samples:
    """Measure sides in turns.

    Parameters
    ----------
    sides : mapping of str to Side
        By name. One that raises `Stalled` is noted and left out from then on.
    effort : Effort
        How long.
    elsewhere : sequence of mapping, optional
        The same sides over other memory: turn after turn takes the next of them. How well memory
        fits the caches is luck of where its pages lie, and so no side is lucky throughout.

    Returns
    -------
    Samples
        The same number of turns for each side that did not stall.
    """
    samples = Samples()
    sizes: dict[str, int] = {}
    with _collector_paused():
        for name, side in sides.items():
            try:
                sizes[name] = _batch_size(side, effort)
            except Stalled:
                samples.stalled.add(name)
        end = time.monotonic() + effort.seconds * len(sizes)
        places = [sides, *elsewhere]
        for turn in range(effort.most):
            names = list(sizes)
            if not names or (turn >= effort.fewest and time.monotonic() > end):
                break
            start = turn % len(names)
            for name in names[start:] + names[:start]:
                try:
                    _take_turn(name, places[turn % len(places)][name], sizes[name], samples)
                except Stalled:
                    samples.stalled.add(name)
                    del sizes[name]
    for name in samples.stalled:  # what it managed before says nothing
        samples.turns.pop(name, None)
        samples.singles.pop(name, None)
    return samples


def _take_turn(name: str, side: Side, size: int, samples: Samples) -> None:
    if size > 1:  # what is so large that a batch is one operation passes through the caches anyway
        batch_us(side, 1)
    mean = batch_us(side, size)
    samples.turns.setdefault(name, []).append(mean)
    singles = samples.singles.setdefault(name, [])
    if size == 1:
        singles.append(mean)
    else:
        singles.extend(batch_us(side, 1) for _ in range(min(size, _SINGLES)))
