# SPDX-License-Identifier: Apache-2.0
# The first listing of the README, word for word.
# ruff: noqa: E401, E501, I001
# fmt: off
import numpy as np, hixl_rma as rma
from mpi4py import MPI

with rma.Window.allocate((1024, 1024), dtype="f4", comm=MPI.COMM_WORLD, notifications=64) as win:
    right, left = (win.rank + 1) % win.size, (win.rank - 1) % win.size
    row = np.full(1024, win.rank, "f4")
    with win.lock_all():                           # passive target: the target makes no call
        win.put(row, right, 0)                     # displacement in the target's units
        win.put_notify(row, right, 4096, notification=7)
        win.flush(right)                           # complete at the target
    note = win.wait_notify(7, source=left, timeout=5)   # Notification(id=7, source=left, count=1, value=1)
    print(win.local[0, 0], win.local[4, 0], note)
