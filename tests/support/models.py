# SPDX-License-Identifier: Apache-2.0
"""What a window program gives: windows as plain numpy arrays, notifications as dictionaries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from support.programs import RESULTS, Op, Phase, Program
from support.reductions import expected

Array = npt.NDArray[Any]
Notes = dict[tuple[int, int], tuple[int, int]]
"""(id, origin) -> (count, sum of the values)."""


def elements(program: Program, op: Op) -> Array:
    """Return the origin's elements of an operation."""
    return np.array(op.values, dtype=program.dtype)


@dataclass
class Outcome:
    """What is known after a phase: memory and notifications by target, results by origin."""

    memory: list[Array]
    results: list[list[Array]]
    notes: list[Notes] = field(default_factory=list)


class Model:
    """All windows of a program in one process, operation after operation."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.memory: list[Array] = [program.initial(rank) for rank in range(program.size)]

    def run(self, order: Iterable[int] | None = None) -> list[Outcome]:
        """Run all phases; the ranks' operations in the order of ranks given.

        Parameters
        ----------
        order : iterable of int or None, default None
            The ranks in the order in which their operations run; None takes 0, 1, 2, ...
            The outcome must not depend on it.
        """
        ranks = list(range(self.program.size) if order is None else order)
        return [self._phase(phase, ranks) for phase in self.program.phases]

    def _phase(self, phase: Phase, ranks: list[int]) -> Outcome:
        results: list[list[Array]] = [[] for _ in ranks]
        notes: list[Notes] = [{} for _ in ranks]
        for rank in ranks:
            for op in phase.ops[rank]:
                result = self._apply(op)
                if op.verb in RESULTS:
                    results[rank].append(result)
                if "notify" in op.verb:
                    key = (op.notification, rank)
                    count, value = notes[op.target].get(key, (0, 0))
                    notes[op.target][key] = (count + 1, (value + op.value) % (1 << 64))
        return Outcome([memory.copy() for memory in self.memory], results, notes)

    def _apply(self, op: Op) -> Array:
        memory, values = self.memory[op.target], elements(self.program, op)
        where: Any = op.index
        if op.pieces:
            where = np.concatenate([np.arange(start, start + n) for start, n in op.pieces])
            where = where.astype(np.intp)
        before: Array = memory[where].copy()
        if op.verb.startswith("put"):
            memory[where] = values
        elif op.verb in ("accumulate", "get_accumulate", "fetch_and_op"):
            memory[where] = expected(op.op, before, values)
        elif op.verb == "compare_and_swap":
            if before[0] == np.array(op.compare, self.program.dtype):
                memory[where] = values
        elif op.verb == "increment":
            memory[where] = before + values
        return before
