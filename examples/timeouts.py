# SPDX-License-Identifier: Apache-2.0
"""Time-outs: every call that waits takes one; the error says what is missing, and nothing is lost.

mpirun -n 3 python examples/timeouts.py
"""

from mpi4py import MPI

import hixl_rma as rma

comm = MPI.COMM_WORLD
win = rma.Window.allocate(8, comm=comm, notifications=16)
right, left = (win.rank + 1) % win.size, (win.rank - 1) % win.size

with win.lock(right, exclusive=False, timeout=10):
    win.notify(right, notification=3)
comm.Barrier()
told = False
try:
    win.wait_notify(3, count=2, source=left, timeout=0.05)
except rma.NotifyTimeoutError as error:  # also a TimeoutError
    told = all(fact in str(error) for fact in ("notification 3", "count 2", f"rank {left}"))
comm.Barrier()
with win.lock(right, exclusive=False, timeout=10):
    win.notify(right, notification=3)
note = win.wait_notify(3, count=2, source=left, timeout=10)  # the first one was not consumed

# A fence, start, complete, wait or free that timed out goes on when it is called again.
while True:
    try:
        win.free(timeout=0.5)
        break
    except rma.RmaTimeoutError:
        pass  # another rank has not come yet
print(f"rank {comm.rank}: the error names what was missing: {told}; then came {note.count}")
