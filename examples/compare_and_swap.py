# SPDX-License-Identifier: Apache-2.0
"""compare_and_swap: elect a leader, and change a value by a function that no `op` names.

mpirun -n 3 python examples/compare_and_swap.py
"""

import numpy as np
from mpi4py import MPI

import hixl_rma as rma

LEADER, VALUE = 0, 1  # two cells of rank 0
NOBODY = -1

comm = MPI.COMM_WORLD
with rma.Window.allocate(2, dtype="i8", comm=comm) as win:
    win.local[:] = NOBODY, 1
    comm.Barrier()

    me, nobody, old = np.array([win.rank]), np.array([NOBODY]), np.empty(1, "i8")
    with win.lock_all():
        # Stores `me` if the cell holds `nobody`, and reports in `old` what it held.
        win.compare_and_swap(me, nobody, old, 0, LEADER)
        win.flush(0)
        won = bool(old[0] == NOBODY)

        # The value becomes three times as large: try again whenever another rank was faster.
        guess = np.array([1])
        while True:
            win.compare_and_swap(3 * guess, guess, old, 0, VALUE)
            win.flush(0)
            if old[0] == guess[0]:
                break
            guess[:] = old

    winners = comm.gather(won)
    if winners is not None:
        print(f"one leader: {sum(winners) == 1}, value {win.local[VALUE]}")
