# SPDX-License-Identifier: Apache-2.0
"""put: write into the memory of another rank, which makes no call for it.

mpirun -n 3 python examples/put.py
"""

import numpy as np
from mpi4py import MPI

import hixl_rma as rma

comm = MPI.COMM_WORLD
with rma.Window.allocate(4, dtype="f8", comm=comm) as win:
    right = (win.rank + 1) % win.size
    win.local[:] = -1
    comm.Barrier()  # nobody writes before its target has filled its memory

    with win.lock(right):
        # Two elements, from element 1 of the target on: displacements count the target's elements.
        win.put(np.array([win.rank + 0.25, win.rank + 0.5]), right, 1)
    # The end of the epoch has completed the put at its target.

    comm.Barrier()  # everybody is through: what the left neighbour wrote is here
    print(f"rank {win.rank}: {win.local.tolist()}")
