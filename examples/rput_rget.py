# SPDX-License-Identifier: Apache-2.0
"""rput, rget, raccumulate, rget_accumulate: a Request tells when one operation is complete.

mpirun -n 3 python examples/rput_rget.py
"""

import numpy as np
from mpi4py import MPI

import hixl_rma as rma

BLOCKS, BLOCK = 6, 50_000

comm = MPI.COMM_WORLD
with rma.Window.allocate((BLOCKS, BLOCK), dtype="f8", comm=comm) as win:
    right = (win.rank + 1) % win.size
    win.local[:] = np.arange(BLOCKS)[:, None] + 10 * win.rank
    comm.Barrier()

    # Two buffers take turns: while one block is used, the next is on its way.
    buffers, sums = np.empty((2, BLOCK)), []
    with win.lock(right, exclusive=False):
        request = win.rget(buffers[0], right, np.s_[0, :])
        for block in range(BLOCKS):
            request.wait(timeout=30)
            if block + 1 < BLOCKS:
                request = win.rget(buffers[(block + 1) % 2], right, np.s_[block + 1, :])
            sums.append(float(buffers[block % 2].mean()))
    comm.Barrier()

    # Completion of a request means placed at the target; test never waits.
    with win.lock(right, exclusive=False):
        placed = win.rput(np.full(BLOCK, -1.0), right, np.s_[0, :])
        added = win.raccumulate(np.full(BLOCK, 0.5), right, np.s_[1, :])
        while not (placed.test() and added.test()):
            pass  # here other work would be done
        old = np.empty(BLOCK)
        win.rget_accumulate(np.full(BLOCK, 2.0), old, right, np.s_[1, :], op="prod").wait()
    comm.Barrier()
    print(f"rank {win.rank}: {sums}, then {win.local[:2, -1].tolist()}, old {old[-1]}")
