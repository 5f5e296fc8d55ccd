# SPDX-License-Identifier: Apache-2.0
"""remote: the memory of another rank as an array, where it is mapped; and who reaches whom how.

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
    print(f"rank {win.rank}: {win.local.tolist()}, transports {', '.join(win.transports)}")
