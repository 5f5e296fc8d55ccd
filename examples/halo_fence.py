# SPDX-License-Identifier: Apache-2.0
"""fence: heat spreads in a ring of cells; each step exchanges the cells at the borders.

mpirun -n 3 python examples/halo_fence.py
"""

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

import hixl_rma as rma

CELLS, STEPS = 32, 100


def spread(padded: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the cells after one step; the first and the last are neighbours that stay away."""
    return padded[1:-1] + 0.25 * (padded[:-2] - 2 * padded[1:-1] + padded[2:])


comm = MPI.COMM_WORLD
with rma.Window.allocate(CELLS + 2, dtype="f8", comm=comm) as win:
    right, left = (win.rank + 1) % win.size, (win.rank - 1) % win.size
    cells = win.local  # cell 0 and the last one are copies of the neighbours' border cells
    cells[:] = 0
    if win.rank == 0:
        cells[1] = 1000

    for _ in range(STEPS):
        # A fence before and one after: all ranks take part in both.
        with win.fence():
            win.put(cells[1:2], left, CELLS + 1)
            win.put(cells[-2:-1], right, 0)
        cells[1:-1] = spread(cells)

    whole = comm.gather(cells[1:-1].copy())
    if whole is not None:
        alone = np.zeros(CELLS * win.size)
        alone[0] = 1000
        for _ in range(STEPS):
            alone = spread(np.pad(alone, 1, mode="wrap"))
        same = np.array_equal(np.concatenate(whole), alone)
        print(f"{STEPS} steps, heat {alone.sum():.3f}, same as one process: {same}")
