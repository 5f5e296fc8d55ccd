# SPDX-License-Identifier: Apache-2.0
"""Ranks that die or stand still while they hold a lock inside the library."""

import contextlib
import functools
import random
import time

import numpy as np
import pytest

import hixl_rma as rma
from support.threads import Interrupt, Worker, asleep
from support.victims import LONG, NOTICED, Group
from support.windows import Kind

NBYTES = 1 << 20
ATTEMPTS = 40
SHORT = 1.0  # [s]
WORK = 1e-3  # [s] between two attempts, at most: it would be stopped at the same place else

# Holds one stripe lock after the other, nearly always.
ACCUMULATES = """
ones = np.ones(win.local.nbytes // 16, "g")
win.lock(0, exclusive=False)
def accumulate():
    while True:
        win.accumulate(ones, 0, op="prod")
threading.Thread(target=accumulate, daemon=True).start()
"""
KINDS = [Kind("allocate", "shm"), Kind("create", "cma")]


@pytest.fixture
def group(monkeypatch):
    monkeypatch.setenv("HIXL_RMA_TIMEOUT", str(SHORT))  # of accumulates, which take none
    with contextlib.ExitStack() as stack:
        yield functools.partial(Group, stack, victim_does=ACCUMULATES, nbytes=NBYTES)


def add_to_all(g):
    """Take every stripe lock of rank 0 once."""
    g.win.accumulate(np.zeros(NBYTES // 8, "i8"), 0, op="bor")


def stop_in_the_middle(g):
    """Stop rank 1 where it holds a stripe lock of rank 0."""
    g.until_ready()
    g.win.lock(0, exclusive=False)
    for _ in range(ATTEMPTS):
        g.stop()
        try:
            add_to_all(g)
        except rma.RmaTimeoutError:
            return
        g.go_on(work=random.uniform(0, WORK))
    pytest.fail("it was never stopped while it held a lock")


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_an_accumulate_goes_on_with_the_locks_of_a_rank_that_was_killed(group, kind):
    g = group(kind=kind)
    stop_in_the_middle(g)
    killed_at = g.kill()
    add_to_all(g)
    assert time.monotonic() - killed_at < NOTICED
    add_to_all(g)  # and gave them back
    g.win.unlock(0)


def test_an_accumulate_that_waits_goes_on_when_the_stopped_holder_is_killed(group):
    g = group()
    stop_in_the_middle(g)
    waiter = Worker(add_to_all, g)
    waiter.until_asleep()
    killed_at = g.kill()
    waiter.result(LONG)
    assert time.monotonic() - killed_at < NOTICED


def test_an_accumulate_waits_for_a_stopped_holder_and_goes_on_with_it(group):
    g = group()
    stop_in_the_middle(g)
    begin = time.monotonic()
    with pytest.raises(rma.RmaTimeoutError):
        add_to_all(g)
    assert SHORT <= time.monotonic() - begin < SHORT + 1
    g.go_on()
    add_to_all(g)


def test_a_small_accumulate_that_waits_can_be_interrupted_and_holds_up_no_other_thread(
    group, monkeypatch
):
    monkeypatch.setenv("HIXL_RMA_TIMEOUT", str(LONG))
    g = group(nbytes=4096)
    g.until_ready()
    g.win.lock(0, exclusive=False)
    value = np.zeros(1, "i8")
    for _ in range(ATTEMPTS * 10):
        g.stop()
        worker = Worker(lambda: g.win.accumulate(value, 0, op="bor"))
        worker.join(0.1)
        if worker.is_alive():
            break
        g.go_on(work=random.uniform(0, WORK))
    else:
        pytest.fail("it was never stopped while it held a lock")
    # This thread ran meanwhile: the other does not keep the interpreter.
    interrupt = Interrupt(0.1)
    with interrupt.armed(), pytest.raises(KeyboardInterrupt):
        g.win.accumulate(value, 0, op="bor")
    assert time.monotonic() - interrupt.sent_at < NOTICED
    g.kill()
    worker.result(LONG)


@pytest.mark.parametrize("exclusive", [True, False])
def test_a_lock_passes_over_those_that_were_killed_while_they_waited(group, exclusive):
    g = group(4, victim_does="")
    g.until_ready()
    with g.win.lock(0):
        for rank in (1, 2):
            g.tell(f"win.lock(0, exclusive={exclusive}, timeout={LONG})", rank)
            asleep(g.victims[rank].pid)
        g.tell(f"win.lock(0, timeout={LONG}); win.unlock(0)", 3)
        asleep(g.victims[3].pid)
        g.kill(1)
        g.kill(2)
        for rank in (1, 2):
            g.victims[rank].wait()
    assert g.victims[3].stdout.readline() == "ready\n"
    with g.win.lock(0):
        pass
