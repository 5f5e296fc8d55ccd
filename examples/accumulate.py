# SPDX-License-Identifier: Apache-2.0
"""accumulate: add to memory of another rank; concurrent ones never lose an update.

mpirun -n 3 python examples/accumulate.py
"""

import numpy as np
from mpi4py import MPI

import hixl_rma as rma

VALUES = 10_000

comm = MPI.COMM_WORLD
# Rank 0 holds a histogram of ten bins and a maximum; the others bring no memory.
with rma.Window.allocate(11 if comm.rank == 0 else 0, dtype="i8", comm=comm) as win:
    win.local[:] = 0
    comm.Barrier()

    values = np.random.default_rng(win.rank).integers(0, 1000, VALUES)
    with win.lock_all():  # shared: all ranks add at the same time
        win.accumulate(np.bincount(values // 100, minlength=10), 0)
        win.accumulate(values.max(keepdims=True), 0, 10, op="max")

    comm.Barrier()
    everything = np.concatenate(comm.allgather(values))
    if win.rank == 0:
        exact = np.array_equal(win.local[:10], np.bincount(everything // 100, minlength=10))
        print(f"{win.local[:10].sum()} values counted, exact: {exact}")
        print(f"maximum {win.local[10]}, exact: {win.local[10] == everything.max()}")
