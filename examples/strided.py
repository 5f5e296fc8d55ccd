# SPDX-License-Identifier: Apache-2.0
"""Strided origins and targets: a basic index selects elements of the target's array.

mpirun -n 3 python examples/strided.py
"""

import numpy as np
from mpi4py import MPI

import hixl_rma as rma

comm = MPI.COMM_WORLD
with rma.Window.allocate((3, 5), dtype="i4", comm=comm) as win:
    right = (win.rank + 1) % win.size
    win.local[:] = 0
    comm.Barrier()

    image = np.arange(9, dtype="i4").reshape(3, 3) + 10 * (win.rank + 1)
    with win.lock(right):
        win.put(image[:, 0], right, np.s_[:, 3])  # a column into a column, moved as one vector
        win.put(image[::2, 1:], right, np.s_[::2, :2])  # a block of every second row
    comm.Barrier()

    last = np.zeros(5, "i4")
    with win.lock(right, exclusive=False):
        win.get(last, right, np.s_[-1, ::-1])  # the last row, backwards
    comm.Barrier()
    print(f"rank {win.rank}: {win.local.tolist()}, last row of the right: {last.tolist()}")
