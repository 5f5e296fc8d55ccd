# SPDX-License-Identifier: Apache-2.0
"""put_v and get_v: any number of pieces in one call, neighbouring ones merged.

mpirun -n 3 python examples/blocks.py
"""

import numpy as np
from mpi4py import MPI

import hixl_rma as rma

BLOCK, PLACES = 16, [5, 2, 7]

comm = MPI.COMM_WORLD
with rma.Window.allocate((8, BLOCK), dtype="i4", comm=comm) as win:
    right = (win.rank + 1) % win.size
    win.local[:] = -1
    comm.Barrier()

    # Pieces as (origin, displacement) pairs: three blocks go to places 5, 2 and 7.
    blocks = np.arange(3, dtype="i4")[:, None] + np.full(BLOCK, 10 * win.rank, "i4")
    with win.lock(right):
        pairs = [(block, BLOCK * place) for block, place in zip(blocks, PLACES, strict=True)]
        win.put_v(pairs, right)

    # Thousands of them as rows of (address, displacement, bytes): no object for each piece.
    back = np.zeros_like(blocks)
    table = np.empty((3, 3), "u8")
    table[:, 0] = back.ctypes.data + np.arange(3) * back.strides[0]
    table[:, 1] = BLOCK * np.array(PLACES)
    table[:, 2] = back.strides[0]
    with win.lock(right):
        win.get_v(table, right)  # the caller keeps `back` alive until the end of the epoch

    comm.Barrier()
    same = np.array_equal(back, blocks)
    print(f"rank {win.rank}: {win.local[:, 0].tolist()}, read back: {same}")
