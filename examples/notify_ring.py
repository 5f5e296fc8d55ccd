# SPDX-License-Identifier: Apache-2.0
"""put_notify: an array goes round the ring; each rank waits for it, adds to it, passes it on.

mpirun -n 3 python examples/notify_ring.py
"""

import numpy as np
from mpi4py import MPI

import hixl_rma as rma

TOKEN, ROUNDS = 0, 3

with rma.Window.allocate(1000, dtype="i8", comm=MPI.COMM_WORLD, notifications=1) as win:
    right, left = (win.rank + 1) % win.size, (win.rank - 1) % win.size
    with win.lock_all():
        if win.rank == 0:
            win.put_notify(np.zeros(1000, "i8"), right, notification=TOKEN)
        for number in range(ROUNDS):
            # The array is complete when its notification is seen; no other call is needed.
            win.wait_notify(TOKEN, source=left, timeout=30)
            win.local[:] += 1
            if win.rank > 0 or number < ROUNDS - 1:  # else it has gone round often enough
                win.put_notify(win.local, right, notification=TOKEN)
    if win.rank == 0:
        print(f"after {ROUNDS} rounds every element is {np.unique(win.local).tolist()}")
