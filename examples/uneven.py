# SPDX-License-Identifier: Apache-2.0
"""Each rank brings its own size and displacement unit; some bring nothing.

mpirun -n 3 python examples/uneven.py
"""

import numpy as np
from mpi4py import MPI

import hixl_rma as rma

comm = MPI.COMM_WORLD
last = comm.size - 1
# The last rank holds 16 elements that are addressed in units of four of them.
count, unit = (16, 32) if comm.rank == last else (0, 8)
with rma.Window.allocate(count, "i8", disp_unit=unit, comm=comm) as win:
    win.local[:] = 0
    comm.Barrier()
    with win.lock(last, exclusive=False):
        # One unit of the target is four elements: rank 2 writes elements 8 to 11.
        win.put(np.full(4, win.rank + 1), last, win.rank)
    refused = ""
    if last > 0:
        with win.lock(0, exclusive=False):
            try:
                win.put(np.ones(1, "u1"), 0)  # rank 0 has no memory
            except rma.RangeError as error:
                refused = f", refused: {type(error).__name__}"
    comm.Barrier()
    print(f"rank {win.rank}: {win.local[::4].tolist()}{refused}")
