# SPDX-License-Identifier: Apache-2.0
"""Run window programs on mpi4py's own MPI.Win: the oracle that others trust."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from support.models import elements
from support.programs import RESULTS, Op, Phase, Program

Array = npt.NDArray[Any]

_OPS: dict[str, Any] = {
    "sum": MPI.SUM,
    "prod": MPI.PROD,
    "min": MPI.MIN,
    "max": MPI.MAX,
    "land": MPI.LAND,
    "lor": MPI.LOR,
    "lxor": MPI.LXOR,
    "band": MPI.BAND,
    "bor": MPI.BOR,
    "bxor": MPI.BXOR,
    "replace": MPI.REPLACE,
    "no_op": MPI.NO_OP,
}


class OracleExecutor:
    """A program on one MPI.Win, phase by phase."""

    def __init__(self, program: Program, window: Any, memory: Array, comm: Any) -> None:
        self.program, self.window, self.memory, self.comm = program, window, memory, comm
        self.results: list[Array] = []
        self.types: list[Any] = []
        self.keep: list[Array] = []
        memory[...] = program.initial(comm.rank)
        comm.Barrier()

    def phase(self, phase: Phase) -> tuple[Array, list[Array]]:
        """Run a phase; return the local memory after it and the results."""
        self.results, self.types, self.keep = [], [], []
        sync = "lock_all" if phase.sync == "notify" else phase.sync
        getattr(self, f"_{sync}")(phase)
        for datatype in self.types:
            datatype.Free()
        self.comm.Barrier()
        memory = self.memory.copy()
        self.comm.Barrier()
        return memory, self.results

    def _fence(self, phase: Phase) -> None:
        self.window.Fence()
        self._ops(phase.ops[self.comm.rank])
        self.window.Fence(MPI.MODE_NOSUCCEED)

    def _pscw(self, phase: Phase) -> None:
        world, rank = self.comm.Get_group(), self.comm.rank
        origins, targets = world.Incl(phase.origins(rank)), world.Incl(phase.targets(rank))
        self.window.Post(origins)
        self.window.Start(targets)
        self._ops(phase.ops[rank])
        self.window.Complete()
        self.window.Wait()
        for group in (world, origins, targets):
            if group not in (MPI.GROUP_EMPTY, MPI.GROUP_NULL):
                group.Free()

    def _lock(self, phase: Phase) -> None:
        rank = self.comm.rank
        for target in phase.targets(rank):
            kind = MPI.LOCK_EXCLUSIVE if phase.exclusive[target] else MPI.LOCK_SHARED
            self.window.Lock(target, kind)
            self._ops(tuple(op for op in phase.ops[rank] if op.target == target))
            self.window.Unlock(target)

    def _lock_all(self, phase: Phase) -> None:
        self.window.Lock_all()
        self._ops(phase.ops[self.comm.rank])
        self.window.Unlock_all()

    def _ops(self, ops: tuple[Op, ...]) -> None:
        for op in ops:
            self._op(op)

    def _where(self, op: Op, datatype: Any) -> list[Any]:
        place = self.program.displacement(op.target, op.start)
        if op.step == 1 or op.count == 0:
            return [place, op.count, datatype]
        vector = datatype.Create_vector(op.count, 1, op.step).Commit()
        self.types.append(vector)
        return [place, 1, vector]

    def _op(self, op: Op) -> None:
        window, program = self.window, self.program
        origin = elements(program, op)
        result = np.zeros(op.count, program.dtype)
        compare = np.array([op.compare], program.dtype)
        self.keep += [origin, result, compare]
        if op.verb in RESULTS:
            self.results.append(result)
        datatype = MPI.Datatype.fromcode(program.dtype.char)
        where = self._where(op, datatype)
        place = program.displacement(op.target, op.start)
        calls: dict[str, Callable[[], Any]] = {
            "flush": lambda: window.Flush(op.target),
            "notify": lambda: None,
            "put": lambda: window.Put(origin, op.target, where),
            "get": lambda: window.Get(result, op.target, where),
            "put_v": lambda: self._pieces(op, origin, window.Put),
            "get_v": lambda: self._pieces(op, result, window.Get),
            "accumulate": lambda: window.Accumulate(origin, op.target, where, _OPS[op.op]),
            "get_accumulate": lambda: window.Get_accumulate(
                origin, result, op.target, where, _OPS[op.op]
            ),
            "fetch_and_op": lambda: window.Fetch_and_op(
                origin, result, op.target, place, _OPS[op.op]
            ),
            "compare_and_swap": lambda: window.Compare_and_swap(
                origin, compare, result, op.target, place
            ),
            "increment": lambda: self._increment(op, place),
        }
        calls[op.verb.replace("_notify", "")]()

    def _pieces(self, op: Op, buffer: Array, call: Callable[..., Any]) -> None:
        at = 0
        for start, count in op.pieces:
            place = self.program.displacement(op.target, start)
            call(buffer[at : at + count], op.target, place)
            at += count

    def _increment(self, op: Op, place: int) -> None:
        value = np.zeros(1, self.program.dtype)
        self.window.Get(value, op.target, place)
        self.window.Flush(op.target)
        value += elements(self.program, op)
        self.window.Put(value, op.target, place)
        self.window.Flush(op.target)


@contextlib.contextmanager
def oracle_executor(program: Program, comm: Any) -> Iterator[OracleExecutor]:
    """Make an MPI.Win for a program."""
    rank = comm.rank
    # Not Create: on such windows Open MPI 5.0.11 (osc/rdma) gives wrong results for the logical
    # operations, and for those on bits of 8-byte integers.
    nbytes = program.counts[rank] * program.dtype.itemsize
    window = MPI.Win.Allocate(nbytes, program.units[rank], comm=comm)
    memory: Array = np.empty(0, program.dtype)
    if nbytes:
        exposed: Any = window.tomemory()
        memory = np.frombuffer(exposed, program.dtype)
    try:
        yield OracleExecutor(program, window, memory, comm)
    finally:
        window.Free()
