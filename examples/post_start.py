# SPDX-License-Identifier: Apache-2.0
"""post, start, complete, wait: only the ranks that are named synchronise with each other.

mpirun -n 3 python examples/post_start.py
"""

import numpy as np
from mpi4py import MPI

import hixl_rma as rma

ROUNDS = 3

with rma.Window.allocate(2, dtype="i8", comm=MPI.COMM_WORLD) as win:
    right, left = (win.rank + 1) % win.size, (win.rank - 1) % win.size
    seen = []
    for number in range(ROUNDS):
        win.local[:] = -1
        win.post([left])  # the left neighbour may access my memory from here on
        win.start([right])  # waits for the post of the right one
        win.put(np.array([number, win.rank]), right)
        win.complete()  # my puts are placed; the right one is told
        win.wait()  # the left one has completed: my memory is mine again
        seen.append(win.local.tolist())

    # As guards the closing calls come at the end of the body, in the right order.
    with win.post([left]), win.start([right]):
        win.put(np.array([ROUNDS, win.rank]), right)
    seen.append(win.local.tolist())

    # test is a wait that does not block: true once, when the epoch is over.
    win.post([left])
    win.start([right])
    win.complete()
    while not win.test():
        pass  # here other work would be done
    print(f"rank {win.rank}: {seen}")
