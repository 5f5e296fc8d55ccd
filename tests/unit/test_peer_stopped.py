# SPDX-License-Identifier: Apache-2.0
"""A rank that is stopped is not lost: waits for it end in time and go on when it does."""

import contextlib
import functools
import time

import numpy as np
import pytest

import hixl_rma as rma
from support.victims import LONG, Group
from support.windows import Kind

SHORT = 0.2  # [s] the time-out of a wait that is to run into it

# By name: what is done first; what the stopped rank does first; the wait; what ends it.
WAITS = {
    "fence": ("", "", lambda win, t: win.fence(timeout=t), "win.fence()"),
    "start": ("", "", lambda win, t: win.start([1], timeout=t), "win.post([0])"),
    "wait": (
        "win.post([1])",
        "win.start([0])",
        lambda win, t: win.wait(timeout=t),
        "win.complete()",
    ),
    "lock": ("", "win.lock(0)", lambda win, t: win.lock(0, timeout=t), "win.unlock(0)"),
    "lock_all": ("", "win.lock(0)", lambda win, t: win.lock_all(timeout=t), "win.unlock(0)"),
    "wait_notify": (
        "",
        "win.lock(0)",
        lambda win, t: win.wait_notify(0, source=1, timeout=t),
        "win.notify(0, notification=0)",
    ),
    "free": ("", "", lambda win, t: win.free(timeout=t), "win.free()"),
}


@pytest.fixture
def group(monkeypatch):
    monkeypatch.setenv("HIXL_RMA_TIMEOUT", str(LONG))
    with contextlib.ExitStack() as stack:
        yield functools.partial(Group, stack)


@pytest.mark.parametrize("name", WAITS)
def test_a_wait_for_a_stopped_rank_ends_in_time_and_goes_on_with_it(group, name):
    mine, theirs, wait, end = WAITS[name]
    g = group(victim_does=theirs)
    if mine:
        g.win.post([1])
    g.until_ready()
    g.stop()
    for _ in range(2):
        begin = time.monotonic()
        with pytest.raises(rma.RmaTimeoutError):
            wait(g.win, SHORT)
        assert SHORT <= time.monotonic() - begin < SHORT + 1
    assert g.win.failed_ranks == ()
    g.go_on()
    g.tell(end)
    wait(g.win, LONG)
    g.until_ready()


KINDS = [Kind("allocate", "shm"), Kind("allocate", "cma"), Kind("create", "cma")]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_operations_on_a_stopped_rank_complete(group, kind):
    g = group(kind=kind)
    g.until_ready()
    g.stop()
    data = np.arange(32, dtype="u8")
    back = np.zeros(32, "u8")
    old = np.zeros(1, "u8")
    with g.win.lock(1):
        g.win.put(data, 1, 0)
        g.win.accumulate(data, 1, 0)
        g.win.fetch_and_op(np.ones(1, "u8"), old, 1, 8)
        g.win.put_notify(data[:1], 1, 1024, notification=2, value=9)
        g.win.flush(1)
        g.win.get(back, 1, 0)
        g.win.flush(1)
    assert old[0] == 2
    assert back.tolist() == [0, 3, *range(4, 64, 2)]
    assert g.win.failed_ranks == ()
    g.go_on()
    g.tell("note = win.wait_notify(2, source=0); assert note.value == 9")
    g.until_ready()


def test_what_a_stopped_rank_has_to_carry_out_itself_completes_when_it_goes_on(group):
    g = group(kind=Kind("create", "staged"))
    g.until_ready()
    g.stop()
    data = np.arange(64, dtype="u1")
    back = np.zeros(64, "u1")
    g.win.lock(1)
    g.win.put(data, 1, 0)
    request = g.win.rget(back, 1, 0)
    for wait in (lambda: g.win.flush(1, timeout=SHORT), lambda: request.wait(SHORT)):
        with pytest.raises(rma.RmaTimeoutError):
            wait()
    assert g.win.failed_ranks == ()
    g.go_on()
    g.win.flush(1)
    request.wait(LONG)
    g.win.unlock(1)
    assert np.array_equal(back, data)
