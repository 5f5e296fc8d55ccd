# SPDX-License-Identifier: Apache-2.0
"""wait_notify_async and awaited requests: several waits in one event loop.

mpirun -n 3 python examples/notify_async.py
"""

import asyncio

import numpy as np
from mpi4py import MPI

import hixl_rma as rma

JOBS = 4


async def serve(win: rma.Window, job: int, asker: int) -> int:
    """Wait for the numbers of one job, answer with their sum."""
    await win.wait_notify_async(job, source=asker, timeout=30)
    total = int(win.local[job].sum())
    win.notify(asker, notification=JOBS + job, value=total)
    return total


async def ask(win: rma.Window, job: int, server: int) -> int:
    """Send the numbers of one job, wait for the answer."""
    numbers = np.arange(10) + job + 100 * win.rank
    await win.rput(numbers, server, np.s_[job, :])  # placed at the server
    win.notify(server, notification=job)
    return (await win.wait_notify_async(JOBS + job, source=server, timeout=30)).value


async def main(win: rma.Window) -> list[int]:
    """Ask the right neighbour and serve the left one, all jobs at the same time."""
    right, left = (win.rank + 1) % win.size, (win.rank - 1) % win.size
    serving = [asyncio.create_task(serve(win, job, left)) for job in range(JOBS)]
    answers = await asyncio.gather(*[ask(win, job, right) for job in range(JOBS)])
    await asyncio.gather(*serving)
    return answers


with rma.Window.allocate((JOBS, 10), "i8", comm=MPI.COMM_WORLD, notifications=2 * JOBS) as window:
    with window.lock_all():
        results = asyncio.run(main(window))
    print(f"rank {window.rank}: {results}")
