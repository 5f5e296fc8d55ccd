# SPDX-License-Identifier: Apache-2.0
"""A rank that is killed is noticed within a second by whoever waits for it."""

import asyncio
import contextlib
import functools
import select
import time
import uuid
from pathlib import Path

import numpy as np
import pytest

import hixl_rma as rma
from hixl_rma.bootstrap import LocalBootstrap
from support.threads import Worker
from support.victims import LONG, NOTICED, VICTIM, Group, end_rank, start_rank
from support.windows import ALLOCATE, Kind


@pytest.fixture
def group(monkeypatch):
    monkeypatch.setenv("HIXL_RMA_TIMEOUT", str(LONG))
    with contextlib.ExitStack() as stack:
        yield functools.partial(Group, stack)


@pytest.mark.parametrize("source", [1, rma.ANY_SOURCE])
def test_a_wait_for_a_notification_raises_when_its_source_is_killed(group, source):
    g = group()
    g.until_ready()
    error = g.dies_while(lambda: g.win.wait_notify(0, source=source))
    assert error.peer_rank == 1


def test_a_wait_for_any_source_raises_once_for_each_that_dies_and_goes_on(group):
    g = group(3)
    g.until_ready()
    g.dies_while(lambda: g.win.wait_notify(0))
    with g.win.lock(0):
        g.win.notify(0, notification=0)
    assert g.win.wait_notify(0).source == 0
    g.dies_while(lambda: g.win.wait_notify(0), rank=2)


@pytest.mark.parametrize("source", [1, rma.ANY_SOURCE])
def test_a_test_for_a_notification_raises_as_a_wait_does(group, source):
    g = group(3, victim_does="with win.lock(0): win.notify(0, notification=3)")
    g.until_ready()
    g.kill()
    g.until_lost()
    note = g.win.test_notify(3, source=source, count=1 if source == 1 else 2)
    assert note.source == source  # what had arrived comes first
    with pytest.raises(rma.PeerLostError) as caught:
        g.win.test_notify(3, source=source)
    assert caught.value.peer_rank == 1
    if source == 1:
        with pytest.raises(rma.PeerLostError):
            g.win.test_notify(3, source=source)
    else:  # once for each that is lost; always when nobody is left
        assert g.win.test_notify(3) is None
        g.kill(2)
        g.until_lost(2)
        for _ in range(3):
            with pytest.raises(rma.PeerLostError):
                g.win.test_notify(3)


def test_the_descriptor_becomes_readable_when_a_rank_is_killed_and_only_once(group):
    g = group(3)
    g.until_ready()
    descriptor = g.win.notify_fileno()
    assert g.win.test_notify(0) is None
    for rank in (1, 2):
        killed_at = g.kill(rank)
        assert select.select([descriptor], [], [], LONG)[0]
        assert time.monotonic() - killed_at < NOTICED
        with pytest.raises(rma.PeerLostError):
            g.win.test_notify(0)
        assert not select.select([descriptor], [], [], 0.2)[0]


def test_an_awaited_notification_raises_when_its_source_is_killed(group):
    g = group()
    g.until_ready()

    async def wait():
        return await g.win.wait_notify_async(0, source=1)

    g.dies_while(lambda: asyncio.run(wait()))


def test_what_had_arrived_is_reported_before_the_death_of_its_sender(group):
    g = group(victim_does="with win.lock(0): win.notify(0, notification=3, value=8)")
    g.until_ready()
    killed_at = g.kill()
    g.victims[1].wait()
    assert g.win.wait_notify(3, source=1).value == 8
    with pytest.raises(rma.PeerLostError):
        g.win.wait_notify(3, source=1)
    assert time.monotonic() - killed_at < NOTICED


def test_a_fence_raises_when_a_rank_is_killed(group):
    g = group()
    g.until_ready()
    assert g.dies_while(lambda: g.win.fence()).peer_rank == 1


def test_a_lock_whose_holder_is_killed_raises_and_names_it(group):
    g = group(victim_does="win.lock(0)")
    g.until_ready()
    error = g.dies_while(lambda: g.win.lock(0))
    assert error.peer_rank == 1
    assert "lock" in str(error)


def test_a_shared_lock_whose_exclusive_holder_is_killed_raises(group):
    g = group(victim_does="win.lock(0)")
    g.until_ready()
    g.dies_while(lambda: g.win.lock(0, exclusive=False))


def test_the_lock_of_a_rank_that_is_killed_raises(group):
    g = group(3, victim_does="win.lock(1, exclusive=False) if rank == 2 else None")
    g.until_ready()
    g.dies_while(lambda: g.win.lock(1))


def test_start_raises_when_the_target_is_killed_before_it_posts(group):
    g = group()
    g.until_ready()
    g.dies_while(lambda: g.win.start([1]))


def test_wait_raises_when_an_origin_is_killed_before_it_completes(group):
    g = group(victim_does="win.start([0])")
    g.win.post([1])
    g.until_ready()
    g.dies_while(lambda: g.win.wait())


def test_free_ends_when_a_rank_is_killed_and_leaves_nothing(group):
    g = group()
    g.until_ready()
    waiter = Worker(lambda: g.win.free())
    waiter.until_asleep()
    killed_at = g.kill()
    waiter.result(LONG)
    assert time.monotonic() - killed_at < NOTICED
    with pytest.raises(rma.ClosedError):
        g.win.fence()


def test_operations_on_a_rank_that_was_killed_raise_once_its_death_is_known(group):
    g = group()
    g.until_ready()
    g.kill()
    g.until_lost()
    for call in (
        lambda: g.win.lock(1),
        lambda: g.win.lock_all(),
        lambda: g.win.start([1]),
        lambda: g.win.fence(),
    ):
        with pytest.raises(rma.PeerLostError):
            call()


def test_the_living_go_on_when_one_of_them_is_killed(group):
    g = group(3, victim_does="win.lock_all() if rank == 2 else None")
    g.until_ready()
    g.dies_while(lambda: g.win.wait_notify(0, source=1), rank=1)
    with g.win.lock(2, exclusive=False):
        g.win.put(np.full(8, 5, "u1"), 2, 0)
        g.win.flush(2)
        back = np.zeros(8, "u1")
        g.win.get(back, 2, 0)
        g.win.flush(2)
    assert back.tolist() == [5] * 8


def test_a_stopped_rank_is_not_lost(group):
    g = group(victim_does="win.lock_all()")
    g.until_ready()
    g.stop()
    with g.win.lock(1, exclusive=False):
        g.win.put(np.full(8, 3, "u1"), 1, 0)
        g.win.flush(1)
    with pytest.raises(rma.NotifyTimeoutError):
        g.win.wait_notify(0, source=1, timeout=0.3)
    assert g.win.failed_ranks == ()


@pytest.fixture(scope="module")
def _engine():
    """What a process keeps from its first window on is there before leaks are looked for."""
    rma.Window.allocate(1, comm=LocalBootstrap()).free()


@pytest.mark.leaks
@pytest.mark.usefixtures("_engine")
@pytest.mark.parametrize(
    "kind", [ALLOCATE, Kind("create", "cma"), Kind("create", "staged")], ids=str
)
@pytest.mark.parametrize("dead", [(1,), (2,), (1, 2)], ids=str)
def test_nothing_is_left_at_the_survivor_of_ranks_that_were_killed(group, kind, dead):
    g = group(3, kind=kind)
    g.win.notify_fileno()  # with a thread
    g.until_ready()
    for rank in (1, 2):
        with g.win.lock(rank):
            g.win.put(np.ones(8, "u1"), rank, 0)
    for rank in dead:
        g.kill(rank)
    for rank in dead:
        g.until_lost(rank)
    g.win.free(timeout=LONG)


def test_nothing_is_left_in_shared_memory_when_all_ranks_are_killed():
    before = set(Path("/dev/shm").iterdir())
    job = f"death-{uuid.uuid4()}"
    ranks = [start_rank(VICTIM, job, str(rank), "3", "", "", "4096") for rank in range(3)]
    try:
        for process in ranks:
            assert process.stdout.readline() == "ready\n"
    finally:
        for process in ranks:
            end_rank(process)
    left = set(Path("/dev/shm").iterdir()) - before
    assert [path for path in left if "hixl" in path.name] == []


def test_several_waiting_threads_all_learn_of_a_death(group):
    g = group()
    g.until_ready()
    waiters = [Worker(lambda i=i: g.win.wait_notify(i, source=1)) for i in range(3)]
    for waiter in waiters:
        waiter.until_asleep()
    killed_at = g.kill()
    for waiter in waiters:
        with pytest.raises(rma.PeerLostError):
            waiter.result(LONG)
    assert time.monotonic() - killed_at < NOTICED
