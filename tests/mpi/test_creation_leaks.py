# SPDX-License-Identifier: Apache-2.0
"""Windows that were freed leave nothing behind."""

import gc
from pathlib import Path

import numpy as np
import pytest

import hixl_rma as rma
from support.leaks import Holdings, wait_until_clean
from support.windows import rounds

pytestmark = pytest.mark.mpi

WARM_UP = 30
PAGE_BYTES = 4096


def resident_bytes():
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


def mappings():
    return len(Path("/proc/self/maps").read_text().splitlines())


def make_and_free(comm, memory, number):
    if number % 2:
        win = rma.Window.create(memory, comm=comm)
    else:
        win = rma.Window.allocate(1 << 16, comm=comm)
    with win:
        with win.lock(0):
            win.put(memory[:64], 0, 0)
        win.notify_fileno()
    comm.Barrier()


@pytest.mark.deadline(240)
def test_a_thousand_windows_leave_no_descriptor_thread_name_or_memory(comm):
    memory = np.zeros(1 << 16, "u1")
    for number in range(WARM_UP):
        make_and_free(comm, memory, number)
    comm.Barrier()
    before, mapped, resident = Holdings.now(), mappings(), resident_bytes()
    comm.Barrier()
    for number in range(rounds(1000, comm)):
        make_and_free(comm, memory, number)
    comm.Barrier()
    leaked = wait_until_clean(before)
    growth, mapped = resident_bytes() - resident, mappings() - mapped
    comm.Barrier()
    assert not leaked, leaked
    # The allocator may keep an arena; a leak of one page a window would be 4 MiB.
    assert growth < 3 << 20, f"{growth} bytes more are resident"
    assert mapped <= 8, f"{mapped} more mappings"


def test_creations_that_fail_leave_nothing(comm):
    def fail():
        with pytest.raises(rma.RmaError):
            rma.Window.allocate(8 if comm.rank else -1, comm=comm)

    for _ in range(WARM_UP):
        fail()
    comm.Barrier()
    before = Holdings.now()
    comm.Barrier()
    for _ in range(rounds(100, comm)):
        fail()
    comm.Barrier()
    assert not wait_until_clean(before)


@pytest.mark.leaks
def test_a_window_left_by_an_exception_gives_everything_back(comm):
    class Left(Exception):
        pass

    def leave():
        with rma.Window.allocate(1 << 16, comm=comm) as win:
            win.notify_fileno()
            raise Left

    with pytest.raises(Left):
        leave()
