# SPDX-License-Identifier: Apache-2.0
"""fetch_and_op: a shared counter hands out tasks, each to exactly one rank.

mpirun -n 3 python examples/counter.py
"""

import numpy as np
from mpi4py import MPI

import hixl_rma as rma

TASKS = 200

comm = MPI.COMM_WORLD
with rma.Window.allocate(1, dtype="i8", comm=comm) as win:
    win.local[:] = 0
    comm.Barrier()

    one, ticket, mine = np.ones(1, "i8"), np.empty(1, "i8"), []
    with win.lock_all():
        while True:
            win.fetch_and_op(one, ticket, 0, op="sum")  # the old value comes back in `ticket`
            win.flush(0)
            if ticket[0] >= TASKS:
                break
            mine.append(int(ticket[0]))  # here the work would be done

    done = comm.gather(mine)
    if done is not None:
        each_once = sorted(task for tasks in done for task in tasks) == list(range(TASKS))
        print(f"{TASKS} tasks, each done once: {each_once}")
