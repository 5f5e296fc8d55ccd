# SPDX-License-Identifier: Apache-2.0
"""The rows of the benchmark: name, window, size, what the target does, and the goal."""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Iterator, Sequence

from hixl_rma.bench.goals import Figure, Goal, at_least, at_most

__all__ = [
    "ALLOCATED",
    "ASLEEP",
    "BLOCK",
    "BLOCKS",
    "COMPUTING",
    "CREATED",
    "CROWD",
    "KIB",
    "MAX_SIZE",
    "MIB",
    "PAIR",
    "SIZES",
    "SPINNING",
    "Row",
    "rows",
    "select",
    "size_text",
]

ALLOCATED, CREATED = "allocated", "created"
ASLEEP, SPINNING, COMPUTING = "asleep", "spinning", "computing"
KIB, MIB = 1 << 10, 1 << 20
MAX_SIZE = 256 * MIB
SIZES = (
    8,
    64,
    512,
    4 * KIB,
    16 * KIB,
    64 * KIB,
    256 * KIB,
    MIB,
    4 * MIB,
    16 * MIB,
    64 * MIB,
    256 * MIB,
)
BLOCKS, BLOCK = 1024, 16 * KIB
_FEW = (8, 64 * KIB, MIB)
CROWD, PAIR = 16, 2  # ranks
_MILLISECOND = 1000.0  # [us]


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes
    ----------
    scenario : str
        The function that measures it (`hixl_rma.bench.scenarios`).
    name : str
        What is measured.
    window : str
        ``"allocated"`` or ``"created"``.
    size : int
        Bytes of one operation; 0 where it has none.
    state : str
        What the target does: ``"asleep"`` (in time.sleep), ``"spinning"`` (in a wait) or
        ``"computing"`` (in Python, holding the GIL); "" where both ranks take part.
    goal : Goal or None
        What it has to reach.
    unit : str
        Of its figures: ``"us"`` or ``"%"``.
    absent : str
        Why it cannot be measured in this version; "" when it can.
    ranks : int
        How many it takes.
    """

    scenario: str
    name: str
    window: str = ALLOCATED
    size: int = 0
    state: str = ""
    goal: Goal | None = None
    unit: str = "us"
    absent: str = ""
    ranks: int = PAIR

    @property
    def key(self) -> str:
        """Return the name that ``--rows`` matches, such as ``put + flush/allocated/8 B/asleep``."""
        parts = (self.name, self.window, size_text(self.size), self.state)
        return "/".join(part for part in parts if part)

    @property
    def goal_text(self) -> str:
        """Return the goal as people write it; "" when there is none."""
        return self.goal.text(self.unit) if self.goal else ""


def size_text(size: int) -> str:
    """Return a size as people write it; "" for 0."""
    if size >= MIB:
        return f"{size // MIB} MiB"
    if size >= KIB:
        return f"{size // KIB} KiB"
    return f"{size} B" if size else ""


def _transfer_goal(window: str, size: int, state: str) -> Goal | None:
    if window == ALLOCATED:
        if size == 8:
            return at_most(0.4) & at_least(2.0, Figure.MPI)
        if size in (64 * KIB, MIB):
            return at_least(0.95, Figure.LIMIT)
        if size in (64 * MIB, 256 * MIB):
            if state == COMPUTING:
                return at_least(0.95, Figure.LIMIT)
            return at_least(1.7 if size == 64 * MIB else 1.5, Figure.LIMIT)
        return None
    goal = at_least(0.95, Figure.LIMIT)
    if size in (64 * KIB, MIB) and state == SPINNING:
        goal &= at_least(1.3, Figure.MPI)
    return goal


def _transfers() -> Iterator[Row]:
    sweeps = (
        (ALLOCATED, ASLEEP, SIZES),
        (ALLOCATED, SPINNING, _FEW),
        (ALLOCATED, COMPUTING, (64 * MIB, 256 * MIB)),
        (CREATED, ASLEEP, SIZES),
        (CREATED, SPINNING, _FEW),
    )
    for window, state, sizes in sweeps:
        for size in sizes:
            for name in ("put", "get"):
                goal = _transfer_goal(window, size, state)
                yield Row(name, f"{name} + flush", window, size, state, goal)
    for size in (64 * MIB, 256 * MIB):
        yield Row(
            "slowdown", "peer's work slowed by put", ALLOCATED, size, COMPUTING, at_most(10), "%"
        )
    for window in (ALLOCATED, CREATED):
        goal = at_least(0.90, Figure.LIMIT)
        yield Row("blocks", f"{BLOCKS} x put_v + flush", window, BLOCK, ASLEEP, goal)


def _atomics() -> Iterator[Row]:
    for window in (ALLOCATED, CREATED):
        goal = at_most(0.5) if window == ALLOCATED else at_least(1 / 2.5, Figure.LIMIT)
        for name in ("fetch_and_op", "compare_and_swap"):
            for state in (ASLEEP, SPINNING):
                yield Row(name, f"{name} + flush", window, 8, state, goal)
    for size in (8, 64 * KIB, MIB):
        no_worse = at_least(1.0, Figure.MPI) if size == MIB else None
        yield Row("accumulate", "accumulate sum + flush", ALLOCATED, size, SPINNING, no_worse)
        yield Row("accumulate", "accumulate sum + flush", CREATED, size, SPINNING, no_worse)


def _synchronisation() -> Iterator[Row]:
    yield Row("fence", "fence", goal=at_most(1.0) & at_least(1.0, Figure.MPI))
    for name in ("lock exclusive", "lock shared"):
        yield Row(name, f"{name} + unlock", ALLOCATED, 0, SPINNING)


def _notifications() -> Iterator[Row]:
    goal = at_most(1.0) & at_least(3.0, Figure.MPI)
    yield Row("put_notify", "put + notification, one way", ALLOCATED, 8, SPINNING, goal)
    yield Row("wait_one", "wait for one id, 1 origin", goal=at_most(1.0))
    yield Row("wait_all_1", "wait for any of 256 ids, 1 origin", goal=at_most(1.5))
    yield Row("wait_all_4", "wait for any of 256 ids, 4 origins", goal=at_most(1.5))
    yield Row("wait_all_64", "wait for any of 256 ids, 64 origins", goal=at_most(3.0))
    yield Row("sleeping", "processor share of a sleeping waiter", goal=at_most(1.0), unit="%")


PASSIVE = (
    "put",
    "get",
    "accumulate",
    "fetch_and_op",
    "compare_and_swap",
    "put_notify",
    "lock exclusive",
    "lock shared",
)


def _passive() -> Iterator[Row]:
    below = _MILLISECOND
    goals = {
        ASLEEP: at_most(below) & at_most(below, Figure.P99),
        COMPUTING: at_most(5 * below, Figure.P99),
    }
    for window in (ALLOCATED, CREATED):
        for state, goal in goals.items():
            for name in PASSIVE:
                yield Row(f"passive {name}", f"passive {name}", window, 8, state, goal)


def _overlap() -> Iterator[Row]:
    size = 64 * MIB
    yield Row("rput", "rput until it returns", ALLOCATED, size, ASLEEP, at_most(100))
    yield Row("hidden", "rput hidden behind computing", ALLOCATED, size, ASLEEP, unit="%")


def _crowd() -> Iterator[Row]:
    names = {
        "fences": "fence",
        "locks": "count under an exclusive lock",
        "accumulates": "accumulate 8 KiB at one rank",
        "notifications": "token by notifications (MPI: messages)",
    }
    for scenario, name in names.items():
        goal = at_least(1.0, Figure.MPI)
        yield Row(scenario, f"{CROWD} ranks: {name}", goal=goal, ranks=CROWD)


def _absent() -> Iterator[Row]:
    transport, layer = "no tcp or verbs in this version", "no KV-cache layer in this version"
    yield Row("", "tcp: put + flush", size=8, absent=transport)
    yield Row("", "tcp: put + flush", size=64 * MIB, absent=transport)
    yield Row("", f"tcp: {BLOCKS} x put_v + flush", size=BLOCK, absent=transport)
    yield Row("", "verbs: bandwidth and latency", absent=transport)
    yield Row("", "KV cache of 2 GB, 4 decode ranks", absent=layer)


def rows(max_size: int = MAX_SIZE) -> list[Row]:
    """Return all rows, in the order in which they are measured.

    Parameters
    ----------
    max_size : int
        Leave out operations of more bytes [bytes].
    """
    parts = (
        _transfers(),
        _atomics(),
        _synchronisation(),
        _notifications(),
        _passive(),
        _overlap(),
        _crowd(),
        _absent(),
    )
    found = [row for part in parts for row in part]
    return [row for row in found if row.size * _pieces(row) <= max_size]


def _pieces(row: Row) -> int:
    return BLOCKS if row.scenario == "blocks" else 1


def select(found: Sequence[Row], patterns: Sequence[str]) -> list[Row]:
    """Return the rows whose key holds one of some shell patterns; without any, all."""
    if not patterns:
        return list(found)
    return [
        row
        for row in found
        if any(fnmatch.fnmatchcase(row.key, f"*{pattern}*") for pattern in patterns)
    ]
