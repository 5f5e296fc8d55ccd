# SPDX-License-Identifier: Apache-2.0
"""Operations and locks complete while their target sleeps or computes with the GIL held."""

import os
import time

import numpy as np
import pytest

import hixl_rma as rma
from support.windows import assert_bytes, meet, pattern, raw

pytestmark = [pytest.mark.mpi(min_size=2)]

TARGET = 1
AWAY = 0.4  # seconds
LIMIT = 0.05  # seconds for one operation


def sleep_until(end):
    time.sleep(max(0.0, end - time.monotonic()))


def compute_until(end):
    # One multiplication of these takes tens of milliseconds and never gives the GIL away.
    number = (1 << 400_000) - 1
    while time.monotonic() < end:
        number * number


def idle(win, comm, away):
    """The target's part: be away from everything for a while, and say until when."""
    comm.Barrier()
    away(time.monotonic() + AWAY)
    back = time.monotonic()
    meet(comm)
    return back


def steps(win):
    """Every kind of passive access, each with what opens and closes its epoch."""
    block, big = pattern(3, 8), pattern(4, 1 << 20)
    one, old = np.array([5], "i8"), np.zeros(1, "i8")
    got, got_big = np.zeros(8, "u1"), np.zeros(1 << 20, "u1")
    at = 1 << 20

    yield "lock", lambda: win.lock(TARGET)
    yield "put", lambda: (win.put(block, TARGET, 0), win.flush(TARGET))
    yield "get", lambda: (win.get(got, TARGET, 0), win.flush(TARGET))
    yield "large put", lambda: (win.put(big, TARGET, 64), win.flush(TARGET))
    yield "large get", lambda: (win.get(got_big, TARGET, 64), win.flush(TARGET))
    yield "unlock", lambda: win.unlock(TARGET)
    yield "shared lock", lambda: win.lock(TARGET, exclusive=False)
    yield "accumulate", lambda: (win.accumulate(one, TARGET, at + 64), win.flush(TARGET))
    yield (
        "fetch_and_op",
        lambda: (
            win.fetch_and_op(one, old, TARGET, at + 64),
            win.flush(TARGET),
        ),
    )
    yield (
        "compare_and_swap",
        lambda: (
            win.compare_and_swap(one, np.array([10]), old, TARGET, at + 64),
            win.flush(TARGET),
        ),
    )
    yield (
        "vector",
        lambda: (
            win.put_v([(block, at + 128 + 16 * k) for k in range(100)], TARGET),
            win.flush(TARGET),
        ),
    )
    yield "notify", lambda: win.put_notify(block, TARGET, at + 80, notification=2)
    yield "second unlock", lambda: win.unlock(TARGET)
    yield "lock_all", lambda: win.lock_all()
    yield "unlock_all", lambda: win.unlock_all()


def access_everything(win, comm):
    """The origin's part: time each step."""
    comm.Barrier()
    taken = {}
    for name, step in steps(win):
        begin = time.monotonic()
        step()
        taken[name] = time.monotonic() - begin
    end = time.monotonic()
    meet(comm)
    return end, taken


@pytest.mark.parametrize("away", [sleep_until, compute_until], ids=["asleep", "computing"])
def test_every_operation_completes_while_the_target_is_away(make, comm, away):
    with make((1 << 20) + 4096) as win:
        raw(win)[:] = 0
        end, taken, back = 0.0, {}, 0.0
        if comm.rank == 0:
            end, taken = access_everything(win, comm)
        elif comm.rank == TARGET:
            back = idle(win, comm, away)
        else:
            comm.Barrier()
            meet(comm)
        back = comm.bcast(back, root=TARGET)
        if comm.rank == 0:
            # The clock is one for all processes of a host.
            assert end < back, f"the last operation ended {end - back} s after the target came back"
            slow = {name: seconds for name, seconds in taken.items() if seconds > LIMIT}
            assert len(slow) <= 1, slow  # the machine may take the processor away once
        if comm.rank == TARGET:
            memory = raw(win)
            assert_bytes(memory[:8], pattern(3, 8))
            assert_bytes(memory[64 : 64 + (1 << 20)], pattern(4, 1 << 20))
            assert memory[(1 << 20) + 64 : (1 << 20) + 72].view("i8")[0] == 5
            assert win.wait_notify(2, timeout=20).source == 0
        comm.Barrier()


def test_the_very_first_operation_needs_no_help_of_the_target(make, comm):
    # Nothing has been moved between these ranks before; the target is away from the start.
    comm.Barrier()
    with make(64) as win:
        back = end = 0.0
        if comm.rank == TARGET:
            sleep_until(time.monotonic() + AWAY)
            back = time.monotonic()
        elif comm.rank == 0:
            with win.lock(TARGET):
                win.put(pattern(1, 64), TARGET, 0)
            end = time.monotonic()
        meet(comm)
        back = comm.bcast(back, root=TARGET)
        if comm.rank == 0:
            assert end < back
        comm.Barrier()
        if comm.rank == TARGET:
            assert_bytes(raw(win), pattern(1, 64))
        comm.Barrier()


def test_a_released_lock_reaches_its_waiter_while_the_target_is_away(make, comm):
    # Rank 0 holds the lock of a target that sleeps; another rank waits for it (or itself again).
    with make(64) as win:
        back = end = 0.0
        if comm.rank == 0:
            win.lock(TARGET)
            comm.Barrier()
            win.unlock(TARGET)
            with win.lock(TARGET, timeout=20):
                win.put(pattern(2, 8), TARGET, 0)
            end = time.monotonic()
        elif comm.rank == TARGET:
            comm.Barrier()
            sleep_until(time.monotonic() + AWAY)
            back = time.monotonic()
        else:
            comm.Barrier()
            with win.lock(TARGET, timeout=20):
                win.put(pattern(2, 8), TARGET, 0)
            end = time.monotonic()
        meet(comm)
        back = comm.bcast(back, root=TARGET)
        if comm.rank != TARGET:
            assert end < back
        comm.Barrier()


def test_a_target_sees_the_puts_by_plain_loads_alone(comm):
    memory = np.zeros(1 << 16, "u1")
    with rma.Window.create(memory, comm=comm) as win:
        comm.Barrier()
        if comm.rank == TARGET:
            # A flag in its own memory, polled as loops of solvers do, with no call of the library.
            give_up = time.monotonic() + 20
            while memory[-1] == 0 and time.monotonic() < give_up:
                os.sched_yield()
            assert memory[-1] == 7
            assert_bytes(memory[:-1], pattern(6, (1 << 16) - 1))
        elif comm.rank == 0:
            with win.lock(TARGET):
                win.put(pattern(6, (1 << 16) - 1), TARGET, 0)
                win.flush(TARGET)
                win.put(np.array([7], "u1"), TARGET, (1 << 16) - 1)
        comm.Barrier()
