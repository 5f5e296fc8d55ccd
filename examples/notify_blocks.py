# SPDX-License-Identifier: Apache-2.0
"""put_notify_v and rput_notify: scattered blocks, and one notification when all are there.

mpirun -n 3 python examples/notify_blocks.py
"""

import numpy as np
from mpi4py import MPI

import hixl_rma as rma

BLOCK = 256
CACHE, ROW = 0, 1

comm = MPI.COMM_WORLD
with rma.Window.allocate((12, BLOCK), dtype="f4", comm=comm, notifications=2) as win:
    right, left = (win.rank + 1) % win.size, (win.rank - 1) % win.size
    win.local[:] = 0
    comm.Barrier()

    cache = np.arange(1, 5, dtype="f4")[:, None] * np.ones(BLOCK, "f4") + 10 * win.rank
    table = [7, 2, 11, 4]  # where the target wants each block
    with win.lock(right, exclusive=False):
        pieces = [(block, BLOCK * place) for block, place in zip(cache, table, strict=True)]
        win.put_notify_v(pieces, right, notification=CACHE, value=cache.nbytes)

        note = win.wait_notify(CACHE, source=left, timeout=30)
        blocks = win.local[table, 0].tolist()

        # As a request: its completion means placed. `order="self"` asks for this payload only.
        request = win.rput_notify(cache[0], right, 0, notification=ROW, order="self")
        request.wait(timeout=30)
        win.wait_notify(ROW, source=left, timeout=30)
    comm.Barrier()
    print(f"rank {win.rank}: {note.value} bytes, blocks {blocks}, then {win.local[0, 0]}")
