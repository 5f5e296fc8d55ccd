# SPDX-License-Identifier: Apache-2.0
"""flush, flush_all, flush_local, flush_local_all, sync: what is complete without an epoch's end.

mpirun -n 3 python examples/flushes.py
"""

import os

import numpy as np
from mpi4py import MPI

import hixl_rma as rma

FLAG, DATA = 0, 1

comm = MPI.COMM_WORLD
with rma.Window.allocate(1 + 4, dtype="i8", comm=comm) as win:
    right = (win.rank + 1) % win.size
    win.local[:] = 0
    comm.Barrier()

    with win.lock_all():
        origin = np.array([win.rank, win.rank])
        win.put(origin, right, DATA)
        win.flush_local(right)  # `origin` may be used again; the target may not have it yet
        origin += 100
        win.put(origin, right, DATA + 2)
        win.flush(right)  # both puts are placed at the target
        origin[:] = -1
        win.put(np.array([1]), right, FLAG)
        win.flush_all()  # everything, at every target

        # The target polls its own memory. (A notification does this without polling.)
        while win.local[FLAG] == 0:
            win.sync()  # what others stored before is visible to loads after
            os.sched_yield()
        arrived = win.local[DATA:].tolist()
        comm.Barrier()  # it has arrived everywhere

        result = np.empty(win.size, "i8")
        for rank in range(win.size):
            win.get(result[rank : rank + 1], rank, DATA)
        win.flush_local_all()  # for a get: the results are here
    comm.Barrier()
    print(f"rank {win.rank}: {arrived}, first of each: {result.tolist()}")
