# SPDX-License-Identifier: Apache-2.0
"""get: read the memory of another rank, which makes no call for it.

mpirun -n 3 python examples/get.py
"""

import numpy as np
from mpi4py import MPI

import hixl_rma as rma

comm = MPI.COMM_WORLD
with rma.Window.allocate(8, dtype="i4", comm=comm) as win:
    right = (win.rank + 1) % win.size
    win.local[:] = np.arange(8) + 100 * win.rank
    comm.Barrier()  # nobody reads before its target has filled its memory

    result = np.empty(3, "i4")
    with win.lock(right, exclusive=False):  # shared: others may read at the same time
        win.get(result, right, 4)
        win.flush(right)  # the result is valid from here on
        total = int(result.sum())

    comm.Barrier()  # everybody has read
    print(f"rank {win.rank}: {result.tolist()}, sum {total}")
