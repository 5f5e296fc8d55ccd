# SPDX-License-Identifier: Apache-2.0
"""wait_notify_some and wait_notify_all: one rank gathers from all, in whatever order they come.

mpirun -n 3 python examples/notify_fan_in.py
"""

import numpy as np
from mpi4py import MPI

import hixl_rma as rma

comm = MPI.COMM_WORLD
# One id for each rank's row at rank 0, and as many again for "that was my last one".
with rma.Window.allocate(
    (comm.size, 4) if comm.rank == 0 else 0, "f8", comm=comm, notifications=2 * comm.size
) as win:
    rows, ends = range(win.size), range(win.size, 2 * win.size)
    with win.lock(0, exclusive=False):
        row = np.full(4, win.rank + 0.5)
        win.put_notify(row, 0, 4 * win.rank, notification=win.rank, value=row.nbytes)
        win.notify(0, notification=win.size + win.rank)

    if win.rank == 0:
        gathered, nbytes = set(), 0
        while len(gathered) < win.size:
            # All ids that something has come for, at least one.
            for note in win.wait_notify_some(rows, timeout=30):
                gathered.add(note.id)
                nbytes += note.value
        # Every id or nothing: the list is in the order that was asked for.
        last = win.wait_notify_all(ends, timeout=30)
        print(f"{nbytes} bytes, rows {win.local[:, 0].tolist()}")
        print(f"sources of the last ones: {[note.source for note in last]}")
