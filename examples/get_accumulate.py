# SPDX-License-Identifier: Apache-2.0
"""get_accumulate: fetch elements and combine them in one atomic step; `no_op` is an atomic read.

mpirun -n 3 python examples/get_accumulate.py
"""

import numpy as np
from mpi4py import MPI

import hixl_rma as rma

comm = MPI.COMM_WORLD
with rma.Window.allocate(3, dtype="i8", comm=comm) as win:
    win.local[:] = 0
    comm.Barrier()

    # Each rank takes one place in each of three queues: what was there before is its place.
    place = np.empty(3, "i8")
    with win.lock_all():
        win.get_accumulate(np.ones(3, "i8"), place, 0, op="sum")
        win.flush(0)
    comm.Barrier()

    length = np.empty(3, "i8")
    with win.lock_all():
        win.get_accumulate(np.zeros(3, "i8"), length, 0, op="no_op")  # the origin is ignored
        win.flush(0)

    places = comm.gather(place)
    if places is not None:
        each_once = np.array_equal(np.sort(places, axis=0)[:, 0], np.arange(win.size))
        print(f"queues of length {length.tolist()}, every place taken once: {each_once}")
