# SPDX-License-Identifier: Apache-2.0
"""notify_fileno: wait for notifications and for other descriptors in one select.

mpirun -n 3 python examples/notify_select.py
"""

import os
import select
import threading

from mpi4py import MPI

import hixl_rma as rma

TIMES = 5

comm = MPI.COMM_WORLD
with rma.Window.allocate(0, comm=comm, notifications=4) as win:
    right = (win.rank + 1) % win.size
    descriptor = win.notify_fileno()  # one for the life of the window
    reader, writer = os.pipe()  # stands for a socket, a terminal, another program
    threading.Timer(0.05, os.write, (writer, b"hello")).start()

    with win.lock(right, exclusive=False):
        for number in range(TIMES):
            win.notify(right, notification=number % 4)

    message, counted = b"", 0
    while not (message and counted == TIMES):
        readable, _, _ = select.select([descriptor, reader], [], [], 30)
        if not readable:
            raise TimeoutError
        if reader in readable:
            message += os.read(reader, 100)
        if descriptor in readable:  # "look": take notes until there are none
            while (note := win.test_notify()) is not None:
                counted += note.count
    os.close(reader)
    os.close(writer)
    comm.Barrier()
    print(f"rank {win.rank}: {message.decode()} and {counted} notifications")
