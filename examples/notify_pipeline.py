# SPDX-License-Identifier: Apache-2.0
"""get_notify: a bounded pipeline; the reader hands each buffer back to its owner by reading it.

mpirun -n 3 python examples/notify_pipeline.py
"""

import numpy as np
from mpi4py import MPI

import hixl_rma as rma

SLOTS, ITEMS, SIZE = 2, 12, 1000
FULL, FREE = 0, 1

# Every rank makes items for the right neighbour, in slots of its own memory.
with rma.Window.allocate((SLOTS, SIZE), dtype="i8", comm=MPI.COMM_WORLD, notifications=2) as win:
    right, left = (win.rank + 1) % win.size, (win.rank - 1) % win.size
    item, received = np.empty(SIZE, "i8"), []
    with win.lock_all():
        for number in range(ITEMS):
            if number >= SLOTS:  # wait until the slot was read: at most two items are under way
                win.wait_notify(FREE, source=right, timeout=30)
            win.local[number % SLOTS] = 100 * win.rank + number
            win.sync()  # the stores before come before the notification
            win.notify(right, notification=FULL)

            win.wait_notify(FULL, source=left, timeout=30)
            win.get_notify(item, left, np.s_[number % SLOTS, :], notification=FREE)
            win.flush_local(left)  # the item is here; its owner may fill the slot again
            received.append(int(item[-1]))
    first, last = received[0], received[-1]
    in_order = received == list(range(first, first + ITEMS))
    print(f"rank {win.rank}: items {first} to {last}, in order: {in_order}")
