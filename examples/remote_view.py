# SPDX-License-Identifier: Apache-2.0
"""remote, transports, stats: another rank's memory as an array; how it is reached; what was sent.

mpirun -n 3 python examples/remote_view.py
"""

from mpi4py import MPI

import hixl_rma as rma

comm = MPI.COMM_WORLD
with rma.Window.allocate((2, 3), dtype="f4", comm=comm) as win:
    right, left = (win.rank + 1) % win.size, (win.rank - 1) % win.size
    win.local[:] = 0
    comm.Barrier()

    view = win.remote(right)  # loads and stores go straight to the target's memory
    view[1, :] = win.rank + 1
    win.sync()  # stores before are visible before what comes after
    with win.lock(right, exclusive=False):
        win.notify(right, notification=0)
    win.wait_notify(0, source=left, timeout=30)
    sent = win.stats().peers[right].notifications
    print(f"rank {win.rank}: {win.local.tolist()} by {win.transports}, notified {sent}")
