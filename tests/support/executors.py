# SPDX-License-Identifier: Apache-2.0
"""Run window programs on our window, in all the forms that its calls have."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

import hixl_rma as rma
from support.models import Notes, elements
from support.programs import RESULTS, Op, Phase, Program
from support.windows import Kind, open_window

Array = npt.NDArray[Any]


def strided(values: Array, stride: int) -> Array:
    """Return the same elements in memory with that many elements from each to the next."""
    memory = np.zeros(max(1, values.size * abs(stride)), values.dtype)
    view = memory[::stride][: values.size] if stride > 0 else memory[stride::stride][: values.size]
    view[...] = values
    return view


class WindowExecutor:
    """A program on one of our windows, phase by phase."""

    def __init__(self, program: Program, window: rma.Window, comm: Any) -> None:
        self.program, self.window, self.comm = program, window, comm
        self.results: list[Array] = []
        self.requests: list[rma.Request] = []
        window.local[...] = program.initial(comm.rank)
        comm.Barrier()

    def phase(self, phase: Phase, notes: Notes) -> tuple[Array, list[Array], Notes]:
        """Run a phase; return the local memory after it, the results, and what was notified.

        Parameters
        ----------
        phase : Phase
            What to do.
        notes : Notes
            The notifications to wait for.
        """
        self.results, self.requests = [], []
        getattr(self, f"_{phase.sync}")(phase)
        seen = {key: self._wait(key, count) for key, (count, _) in notes.items()}
        if phase.sync != "notify":  # there, what was waited for covers the data
            self.comm.Barrier()
        memory = self.window.local.copy()
        assert self.window.test_notify() is None, "a notification that nobody sent"
        self.comm.Barrier()
        return memory, self.results, seen

    def _wait(self, key: tuple[int, int], count: int) -> tuple[int, int]:
        note = self.window.wait_notify(key[0], source=key[1], count=count, timeout=30)
        assert note.source == key[1]
        return note.count, note.value

    def _ops(self, ops: Iterator[Op] | tuple[Op, ...]) -> None:
        for op in ops:
            self._op(op)

    def _fence(self, phase: Phase) -> None:
        self.window.fence()
        self._ops(phase.ops[self.comm.rank])
        self.window.fence(0 if phase.stays_open else rma.NOSUCCEED)

    def _pscw(self, phase: Phase) -> None:
        rank = self.comm.rank
        with self.window.post(phase.origins(rank)), self.window.start(phase.targets(rank)):
            self._ops(phase.ops[rank])

    def _lock(self, phase: Phase) -> None:
        rank = self.comm.rank
        for target in phase.targets(rank):
            with self.window.lock(target, exclusive=phase.exclusive[target]):
                self._ops(op for op in phase.ops[rank] if op.target == target)
                self._finish()

    def _lock_all(self, phase: Phase) -> None:
        with self.window.lock_all():
            self._ops(phase.ops[self.comm.rank])
            self._finish()

    _notify = _lock_all

    def _finish(self) -> None:
        for request in self.requests:
            request.wait(timeout=30)
        self.requests.clear()

    def _target(self, op: Op) -> Any:
        if op.step > 1 or (op.stride < 0 and op.count):
            return np.s_[op.index]
        return self.program.displacement(op.target, op.start)

    def _op(self, op: Op) -> None:
        window, target = self.window, self._target(op)
        origin = strided(elements(self.program, op), op.stride)
        result = strided(np.zeros(op.count, self.program.dtype), op.stride)
        if op.verb in RESULTS:
            self.results.append(result)
        note: dict[str, Any] = {"notification": op.notification, "value": op.value}
        calls: dict[str, Callable[[], Any]] = {
            "flush": lambda: window.flush(op.target),
            "put": lambda: window.put(origin, op.target, target),
            "get": lambda: window.get(result, op.target, target),
            "put_v": lambda: window.put_v(self._pieces(op, origin), op.target),
            "get_v": lambda: window.get_v(self._pieces(op, result), op.target),
            "accumulate": lambda: window.accumulate(origin, op.target, target, op=op.op),
            "get_accumulate": lambda: window.get_accumulate(
                origin, result, op.target, target, op=op.op
            ),
            "fetch_and_op": lambda: window.fetch_and_op(
                origin, result, op.target, target, op=op.op
            ),
            "compare_and_swap": lambda: window.compare_and_swap(
                origin, np.array([op.compare], self.program.dtype), result, op.target, target
            ),
            "increment": lambda: self._increment(op, target),
            "notify": lambda: window.notify(op.target, **note),
            "put_notify": lambda: window.put_notify(origin, op.target, target, **note),
            "put_notify_v": lambda: window.put_notify_v(
                self._pieces(op, origin), op.target, **note
            ),
            "get_notify": lambda: window.get_notify(result, op.target, target, **note),
            "rput": lambda: window.rput(origin, op.target, target),
            "rget": lambda: window.rget(result, op.target, target),
            "raccumulate": lambda: window.raccumulate(origin, op.target, target, op=op.op),
            "rget_accumulate": lambda: window.rget_accumulate(
                origin, result, op.target, target, op=op.op
            ),
        }
        name = f"r{op.verb}" if op.as_request and f"r{op.verb}" in calls else op.verb
        request = calls[name]()
        if name != op.verb:
            self.requests.append(request)

    def _pieces(self, op: Op, buffer: Array) -> list[tuple[Array, int]]:
        pieces, at = [], 0
        for start, count in op.pieces:
            pieces.append((buffer[at : at + count], self.program.displacement(op.target, start)))
            at += count
        return pieces

    def _increment(self, op: Op, target: Any) -> None:
        value = np.zeros(1, self.program.dtype)
        self.window.get(value, op.target, target)
        self.window.flush(op.target)
        self.window.put(value + elements(self.program, op), op.target, target)
        self.window.flush(op.target)


@contextlib.contextmanager
def window_executor(program: Program, kind: Kind, comm: Any) -> Iterator[WindowExecutor]:
    """Make the window of a program."""
    rank = comm.rank
    with open_window(
        program.counts[rank],
        program.dtype,
        kind=kind,
        comm=comm,
        disp_unit=program.units[rank],
        notifications=8,
    ) as window:
        yield WindowExecutor(program, window, comm)
