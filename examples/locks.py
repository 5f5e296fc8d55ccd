# SPDX-License-Identifier: Apache-2.0
"""lock, unlock, lock_all, unlock_all: epochs in which the target takes no part.

mpirun -n 3 python examples/locks.py
"""

import numpy as np
from mpi4py import MPI

import hixl_rma as rma

TIMES = 50

comm = MPI.COMM_WORLD
with rma.Window.allocate(2, dtype="i8", comm=comm) as win:
    win.local[:] = 0
    comm.Barrier()

    # Exclusive: from here to the end of the body no other rank accesses rank 0.
    account = np.empty(2, "i8")
    for _ in range(TIMES):
        with win.lock(0):
            win.get(account, 0)
            win.flush(0)
            account += [1, -1]
            win.put(account, 0)

    # Shared: readers hold it together, and wait for a writer.
    with win.lock(0, exclusive=False, timeout=30):
        win.get(account, 0)
        win.flush(0)
        balanced = bool(account.sum() == 0)
    comm.Barrier()

    # All ranks at once, shared; without a guard the epoch ends with unlock or unlock_all.
    totals = np.empty((win.size, 2), "i8")
    win.lock_all()
    for rank in range(win.size):
        win.get(totals[rank], rank)
    win.unlock_all()

    win.lock(win.rank)  # also for loads and stores to the own memory while others write to it
    mine = win.local.tolist()
    win.unlock(win.rank)
    comm.Barrier()
    print(f"rank {win.rank}: balanced {balanced}, rank 0 has {totals[0].tolist()}, I have {mine}")
