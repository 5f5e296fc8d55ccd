# SPDX-License-Identifier: Apache-2.0
"""notify and its kin: counted marks with a source and a value; looking, waiting, resetting.

mpirun -n 3 python examples/notify.py
"""

from mpi4py import MPI

import hixl_rma as rma

GO, COST = 0, 1

comm = MPI.COMM_WORLD
with rma.Window.allocate(0, comm=comm, notifications=2) as win:  # no memory is needed to notify
    right, left = (win.rank + 1) % win.size, (win.rank - 1) % win.size
    with win.lock(right, exclusive=False):
        for cost in (5, 6, 7):
            win.notify(right, notification=COST, value=cost)
        win.notify(right, notification=GO)  # one default: value=1

    go = win.wait_notify(GO, timeout=30)  # sleeps; whoever sent it is the source
    assert go.source == left

    pending = win.notify_count(COST)  # GO came after the three: they are here as well
    look = win.wait_notify(COST, consume=False, timeout=30)  # changes nothing
    one = win.test_notify(COST)  # never waits; takes one count and every value up to now
    two = win.wait_notify(COST, count=2, source=left, timeout=30)
    nothing = win.test_notify()  # any id: there is none left
    assert look.value == 18
    assert one is not None

    comm.Barrier()
    with win.lock(right, exclusive=False):
        win.notify(right, notification=COST, value=40)
        win.notify(right, notification=COST, value=2)
    comm.Barrier()
    count, value = win.reset_notify(COST)  # takes all that is pending, of every source
    print(f"rank {win.rank}: {pending} pending, values {one.value} and {two.value}, {nothing}")
    print(f"rank {win.rank}: reset took {count} with {value}")
