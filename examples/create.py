# SPDX-License-Identifier: Apache-2.0
"""create: a window over memory that the program already has, here an image.

mpirun -n 3 python examples/create.py
"""

import numpy as np
from mpi4py import MPI

import hixl_rma as rma

comm = MPI.COMM_WORLD
image = np.zeros((4, 6), "u1")  # any writable buffer: numpy, bytearray, mmap, a torch tensor

with rma.Window.create(image, comm=comm) as win:
    right = (win.rank + 1) % win.size
    comm.Barrier()
    with win.lock(right):
        win.put(np.full(4, win.rank + 1, "u1"), right, np.s_[:, 2])
    comm.Barrier()
    shared = np.shares_memory(win.local, image)

# The window is gone, the memory is the program's as before.
print(f"rank {comm.rank}: {image[:, 2].tolist()}, {image.sum()} in all, same memory: {shared}")
