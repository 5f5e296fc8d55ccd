# SPDX-License-Identifier: Apache-2.0
"""Random window programs whose outcome does not depend on timing.

A program is a list of phases. In each phase every window is cut into segments, and each segment
has a role that says who may do what to it, so that whatever order the operations of different
ranks run in, memory and results are the same:

own      one origin puts and gets, no element twice between two flushes
ordered  one origin accumulates with one operation, any element any number of times
swap     one origin compares and swaps
shared   all origins accumulate with one commutative operation and fetch nothing
read     all origins get
locked   all origins read, add and write, under exclusive locks

The same seed and size give the same program on every rank and machine.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

SYNCS = ("fence", "lock", "lock_all", "pscw", "notify")
TYPES = ("b", "B", "h", "H", "i", "I", "l", "L", "f", "d", "D")

_COMMUTATIVE = {
    "i": ("sum", "prod", "min", "max", "land", "lor", "lxor", "band", "bor", "bxor"),
    "u": ("sum", "prod", "min", "max", "land", "lor", "lxor", "band", "bor", "bxor"),
    "f": ("sum", "prod", "min", "max"),
    "c": ("sum", "prod"),
}
RESULTS = frozenset(
    {"get", "get_v", "get_notify", "get_accumulate", "fetch_and_op", "compare_and_swap"}
)


@dataclass(frozen=True)
class Op:
    """One operation; positions and lengths count elements of the target."""

    verb: str
    target: int
    start: int = 0
    count: int = 0
    step: int = 1
    pieces: tuple[tuple[int, int], ...] = ()  # (start, count) of each piece of a vector
    values: tuple[int, ...] = ()
    op: str = "sum"
    compare: int = 0
    stride: int = 1  # of the origin buffer
    as_request: bool = False
    notification: int = 0
    value: int = 0

    @property
    def index(self) -> slice:
        """The elements of the target."""
        return slice(self.start, self.start + self.count * self.step, self.step)


@dataclass(frozen=True)
class Phase:
    """Operations of all ranks between two synchronisations."""

    sync: str
    ops: tuple[tuple[Op, ...], ...]
    exclusive: tuple[bool, ...]  # kind of the locks on each rank
    stays_open: bool  # the closing fence opens the next epoch

    def targets(self, origin: int) -> tuple[int, ...]:
        """The ranks that an origin accesses, each once, in the order of first use."""
        return tuple(dict.fromkeys(op.target for op in self.ops[origin]))

    def origins(self, target: int) -> tuple[int, ...]:
        """The ranks that access a target."""
        return tuple(
            rank for rank, ops in enumerate(self.ops) if target in self.targets(rank) and ops
        )


@dataclass(frozen=True)
class Program:
    """What to create and what to do with it."""

    seed: int
    size: int
    dtype: np.dtype[np.generic]
    counts: tuple[int, ...]  # elements of each rank's window
    units: tuple[int, ...]  # displacement units in bytes
    phases: tuple[Phase, ...]

    def initial(self, rank: int) -> np.ndarray[tuple[int], np.dtype[np.generic]]:
        """What the memory of a rank holds at the start."""
        generator = np.random.default_rng((self.seed, rank))
        return generator.integers(0, 4, self.counts[rank]).astype(self.dtype)

    def displacement(self, target: int, start: int) -> int:
        """An element of a target in that target's units."""
        return start * self.dtype.itemsize // self.units[target]

    def __str__(self) -> str:
        syncs = " ".join(phase.sync for phase in self.phases)
        return f"program(seed={self.seed}, size={self.size}, dtype={self.dtype}: {syncs})"


@dataclass
class _Segment:
    start: int
    stop: int
    role: str
    owner: int
    op: str
    cursor: int = field(init=False)

    def __post_init__(self) -> None:
        self.cursor = self.start

    def admits(self, rank: int) -> bool:
        return self.role in ("shared", "read", "locked") or self.owner == rank


class _Builder:
    """Makes one program; all choices come from one generator."""

    def __init__(self, seed: int, size: int) -> None:
        self.random = random.Random(f"{seed}:{size}")
        self.seed, self.size = seed, size
        self.dtype = np.dtype(self.random.choice(TYPES))
        self.commutative = _COMMUTATIVE[self.dtype.kind]
        self.counts = tuple(
            0 if size > 1 and self.random.random() < 0.1 else self.random.randint(1, 120)
            for _ in range(size)
        )
        halves = [unit for unit in (1, self.dtype.itemsize // 2, self.dtype.itemsize) if unit]
        self.units = tuple(self.random.choice(halves) for _ in range(size))

    def program(self) -> Program:
        phases = tuple(self.phase() for _ in range(self.random.randint(2, 6)))
        return Program(self.seed, self.size, self.dtype, self.counts, self.units, phases)

    def phase(self) -> Phase:
        sync = self.random.choice(SYNCS)
        exclusive = tuple(self.random.random() < 0.5 for _ in range(self.size))
        windows = [
            self.segments(count, sync, exclusive[rank]) for rank, count in enumerate(self.counts)
        ]
        ops = tuple(tuple(self.ops_of(rank, sync, windows)) for rank in range(self.size))
        return Phase(sync, ops, exclusive, stays_open=self.random.random() < 0.5)

    def segments(self, count: int, sync: str, exclusive: bool) -> list[_Segment]:
        roles = [*["own"] * 5, *["ordered"] * 3, "shared", "read"]
        if self.dtype.kind in "iu":
            roles.append("swap")
        if sync == "lock" and exclusive:
            roles.append("locked")
        cuts = sorted({0, count, *(self.random.randint(0, count) for _ in range(6))})
        return [
            _Segment(
                start,
                stop,
                role := self.random.choice(roles),
                self.random.randrange(self.size),
                self.random.choice(
                    (*self.commutative, "replace") if role == "ordered" else self.commutative
                ),
            )
            for start, stop in itertools.pairwise(cuts)
        ]

    def ops_of(self, rank: int, sync: str, windows: list[list[_Segment]]) -> Iterator[Op]:
        passive = sync in ("lock", "lock_all", "notify")
        ops: list[Op] = []
        for _ in range(self.random.randint(0, 14)):
            target = self.random.randrange(self.size)
            segments = [segment for segment in windows[target] if segment.admits(rank)]
            if passive and self.random.random() < 0.15:
                ops.append(Op("flush", target))
                for segment in segments:
                    segment.cursor = segment.start
            elif segments:
                op = self.op(self.random.choice(segments), target, sync)
                ops += [op] if op else []
        if sync == "lock":  # one epoch for each target
            ops.sort(key=lambda op: op.target)
        yield from ops
        if sync == "notify":
            # The last word to each target covers everything before it.
            for target in dict.fromkeys(op.target for op in ops):
                yield self.noted(Op("notify", target))

    def op(self, segment: _Segment, target: int, sync: str) -> Op | None:
        make = getattr(self, f"_{segment.role}")
        op: Op | None = make(segment, target, sync)
        return op

    def numbers(self, count: int, op: str) -> tuple[int, ...]:
        signed = self.dtype.kind != "u"
        if op == "prod":
            choices: tuple[int, ...] = (-1, 1) if signed else (1, 3)
        else:
            choices = tuple(range(-3, 4)) if signed else tuple(range(6))
        return tuple(self.random.choice(choices) for _ in range(count))

    def noted(self, op: Op) -> Op:
        value = self.random.choice((0, 1, 7, (1 << 64) - 1))
        return _with(op, notification=self.random.randrange(4), value=value)

    def _own(self, segment: _Segment, target: int, sync: str) -> Op | None:
        start = segment.cursor + self.random.randint(0, 3)
        room = segment.stop - start
        if room <= 0:
            return None
        step = self.random.choice((1, 1, 1, 2, 3))
        count = self.random.randint(0, min(20, (room + step - 1) // step))
        segment.cursor = start + count * step
        op = Op(
            self.random.choice(("put", "put", "get", "put_v", "get_v")),
            target,
            start,
            count,
            step,
            stride=self.random.choice((1, 1, 2, -1, -3)),
            as_request=sync in ("lock", "lock_all") and self.random.random() < 0.3,
        )
        if op.verb.endswith("_v"):
            op = _with(op, pieces=self.pieces(op), step=1)
        if op.verb.startswith("put"):
            op = _with(op, values=self.numbers(count, "replace"))
        if sync == "notify" and self.random.random() < 0.4:
            names = {"put": "put_notify", "put_v": "put_notify_v", "get": "get_notify"}
            op = self.noted(_with(op, verb=names.get(op.verb, op.verb), as_request=False))
        return op

    def pieces(self, op: Op) -> tuple[tuple[int, int], ...]:
        if op.step > 1:
            return tuple(
                (start, 1) for start in range(op.start, op.start + op.count * op.step, op.step)
            )
        middle = self.random.randint(0, op.count)
        return ((op.start, middle), (op.start + middle, op.count - middle))

    def inside(self, segment: _Segment) -> tuple[int, int, int]:
        """Any elements of a segment: start, count, step."""
        step = self.random.choice((1, 1, 2))
        start = self.random.randrange(segment.start, segment.stop)
        count = self.random.randint(0, min(20, (segment.stop - start + step - 1) // step))
        return start, count, step

    def _ordered(self, segment: _Segment, target: int, sync: str) -> Op:
        verb = self.random.choice(("accumulate", "get_accumulate", "fetch_and_op"))
        start, count, step = self.inside(segment)
        if verb == "fetch_and_op":
            count, step = 1, 1
        op = "no_op" if verb != "accumulate" and self.random.random() < 0.3 else segment.op
        return Op(
            verb,
            target,
            start,
            count,
            step,
            values=self.numbers(count, op),
            op=op,
            stride=self.random.choice((1, 2, -1)),
            as_request=verb != "fetch_and_op"
            and sync in ("lock", "lock_all")
            and self.random.random() < 0.3,
        )

    def _shared(self, segment: _Segment, target: int, _: str) -> Op:
        start, count, step = self.inside(segment)
        values = self.numbers(count, segment.op)
        return Op("accumulate", target, start, count, step, values=values, op=segment.op)

    def _swap(self, segment: _Segment, target: int, _: str) -> Op:
        start = self.random.randrange(segment.start, segment.stop)
        values = self.numbers(1, "replace")
        return Op(
            "compare_and_swap", target, start, 1, values=values, compare=self.random.randint(0, 3)
        )

    def _read(self, segment: _Segment, target: int, _: str) -> Op:
        start, count, step = self.inside(segment)
        return Op("get", target, start, count, step, stride=self.random.choice((1, 2, -1)))

    def _locked(self, segment: _Segment, target: int, _: str) -> Op:
        start = self.random.randrange(segment.start, segment.stop)
        return Op("increment", target, start, 1, values=(self.random.randint(1, 3),))


def _with(op: Op, **changes: Any) -> Op:
    return dataclasses.replace(op, **changes)


def generate(seed: int, size: int) -> Program:
    """Return the program of a seed for so many ranks."""
    return _Builder(seed, size).program()
