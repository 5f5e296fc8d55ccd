# SPDX-License-Identifier: Apache-2.0
"""Windows and single transfers beyond 2 and 4 GiB."""

import numpy as np
import pytest

import hixl_rma as rma
from support.windows import KINDS, neighbours, open_window

pytestmark = [pytest.mark.mpi, pytest.mark.slow, pytest.mark.deadline(300)]

GIB = 1 << 30


@pytest.fixture
def few(comm):
    if comm.size > 2:
        pytest.skip("several GiB a rank: run at 1 and 2 ranks")


def sparse(nbytes):
    """Memory that takes no pages until it is written; reads of the rest give zeros."""
    return np.zeros(nbytes, "u1")


@pytest.mark.parametrize("kind", KINDS[1:], ids=str)
def test_one_put_may_move_more_than_two_gib(few, comm, kind):
    right, left = neighbours(comm)
    size = 2 * GIB + 8 + 4096
    with open_window(size if comm.rank == comm.size - 1 else 64, kind=kind, comm=comm) as win:
        comm.Barrier()
        if right == comm.size - 1:
            origin = sparse(size)
            marks = [0, 1, GIB, (1 << 31) - 1, 1 << 31, size - 1]
            origin[marks] = [1, 2, 3, 4, 5, 6]
            with win.lock(right):
                win.put(origin, right, 0)
                win.flush(right)
                with pytest.raises(rma.RangeError):
                    win.put(origin, right, 1)
            comm.send(marks, right)
        if comm.rank == comm.size - 1:
            marks = comm.recv(source=left)
            assert win.local[marks].tolist() == [1, 2, 3, 4, 5, 6]
            assert np.count_nonzero(win.local) == len(marks)
        comm.Barrier()


def test_displacements_and_gets_may_lie_beyond_four_gib(few, comm):
    right, _ = neighbours(comm)
    size = 4 * GIB + 4096
    holder = comm.size - 1
    memory = sparse(size if comm.rank == holder else 64)
    with rma.Window.create(memory, comm=comm) as win:
        comm.Barrier()
        if right == holder:
            value, back = np.full(16, 7, "u1"), np.zeros(32, "u1")
            with win.lock(right):
                win.put(value, right, 4 * GIB + 8)
                win.accumulate(value, right, 4 * GIB + 8)
                win.flush(right)
                win.get(back, right, 4 * GIB)
                with pytest.raises(rma.RangeError):
                    win.put(value, right, size - 15)
            assert back.tolist() == [0] * 8 + [14] * 16 + [0] * 8
        comm.Barrier()
        if comm.rank == holder:
            assert (memory[4 * GIB + 8 : 4 * GIB + 24] == 14).all()
            assert (memory[8:24] == 0).all()
