# SPDX-License-Identifier: Apache-2.0
"""Waits end with what they wait for or with an error that says what was missing."""

import re
import time

import numpy as np
import pytest

import hixl_rma as rma
from support.threads import Worker
from support.windows import assert_usable, environment, neighbours, rounds

pytestmark = pytest.mark.mpi


def numbers_in(error):
    return {int(text) for text in re.findall(r"\d+", str(error))}


def send(win, target, *ids, value=1):
    with win.lock(target, exclusive=False):
        for number in ids:
            win.notify(target, notification=number, value=value)


def test_a_timeout_says_which_id_how_many_and_what_was_seen(make_one, comm):
    right, left = neighbours(comm)
    with make_one(8) as win:
        send(win, right, 47, 47)
        comm.Barrier()
        with pytest.raises(rma.NotifyTimeoutError) as caught:
            win.wait_notify(47, count=31, source=left, timeout=0.02)
        assert isinstance(caught.value, TimeoutError)
        assert numbers_in(caught.value) >= {47, 31, 2, left}
        comm.Barrier()


@pytest.mark.mpi(min_size=2)
def test_a_timeout_says_which_sources_are_missing(make_one, comm):
    with make_one(8) as win:
        if comm.rank == comm.size - 1:
            send(win, 0, 47)
        comm.Barrier()
        if comm.rank == 0:
            with pytest.raises(rma.NotifyTimeoutError) as caught:
                win.wait_notify(47, source=0, timeout=0.02)
            assert "rank 0" in str(caught.value)
            with pytest.raises(rma.NotifyTimeoutError) as caught:
                win.wait_notify(47, count=2, timeout=0.02)
            assert {47, 2, 1} <= numbers_in(caught.value)
        comm.Barrier()


def test_a_timeout_of_all_says_which_ids_are_missing(make_one, comm):
    right, _ = neighbours(comm)
    with make_one(8) as win:
        send(win, right, 100)
        comm.Barrier()
        with pytest.raises(rma.NotifyTimeoutError) as caught:
            win.wait_notify_all([100, 101, 102], timeout=0.02)
        assert numbers_in(caught.value) >= {101, 102}
        comm.Barrier()


def test_a_timeout_consumes_nothing(make_one, comm):
    right, left = neighbours(comm)
    with make_one(8) as win:
        send(win, right, 7, 7, value=5)
        comm.Barrier()
        for call in (
            lambda: win.wait_notify(7, count=3, timeout=0.01),
            lambda: win.wait_notify_some([7, 8], count=3, timeout=0.01),
            lambda: win.wait_notify_all([7, 8], timeout=0.01),
        ):
            with pytest.raises(rma.NotifyTimeoutError):
                call()
            assert win.notify_count(7) == 2
        assert win.wait_notify(7, count=2, timeout=20) == (7, left, 2, 10)
        comm.Barrier()


def test_no_time_is_a_test_that_raises(make_one, comm):
    right, _ = neighbours(comm)
    with make_one(8) as win:
        begin = time.monotonic()
        for call in (
            lambda: win.wait_notify(7, timeout=0),
            lambda: win.wait_notify(timeout=0),
            lambda: win.wait_notify_some([7], timeout=0),
            lambda: win.wait_notify_all([7], timeout=0.0),
        ):
            with pytest.raises(rma.NotifyTimeoutError):
                call()
        assert time.monotonic() - begin < 1
        comm.Barrier()
        send(win, right, 7)
        comm.Barrier()
        assert win.wait_notify(7, timeout=0).id == 7
        comm.Barrier()


@pytest.mark.parametrize("timeout", [0.02, 0.2, np.float32(0.05), 1])
def test_a_wait_ends_at_its_deadline(make_one, comm, timeout):
    with make_one(8) as win:
        begin = time.monotonic()
        with pytest.raises(rma.NotifyTimeoutError):
            win.wait_notify(7, timeout=timeout)
        taken = time.monotonic() - begin
        assert taken >= float(timeout) * 0.99
        assert taken < float(timeout) + 1
        comm.Barrier()


def test_the_environment_gives_a_wait_its_timeout(make_one, comm):
    comm.Barrier()  # making and freeing the window have the same time-out
    with environment(HIXL_RMA_TIMEOUT="1"), make_one(8) as win:
        with pytest.raises(rma.NotifyTimeoutError):
            win.wait_notify(7)
        with pytest.raises(rma.NotifyTimeoutError):
            win.wait_notify_all([7])
        comm.Barrier()


def test_a_timeout_that_is_far_away_is_legal(make_one, comm):
    right, left = neighbours(comm)
    with make_one(8) as win:
        send(win, right, 7, 7)
        for timeout in (1e6, 1e300):
            assert win.wait_notify(7, timeout=timeout).source == left
        comm.Barrier()


def test_a_wait_ends_when_the_notification_arrives(make, comm):
    right, left = neighbours(comm)
    with make(8) as win:
        waiter = Worker(lambda: (win.wait_notify(7, timeout=50), time.monotonic()))
        waiter.until_asleep()
        comm.Barrier()
        sent = time.monotonic()
        send(win, right, 7)
        note, seen = waiter.result()
        assert note.source == left
        latest = max(comm.allgather(sent))
        assert seen - latest < 0.09, "woken by a clock, not by the notification"
        comm.Barrier()


def test_a_wait_for_several_sleeps_until_the_last_has_arrived(make_one, comm):
    right, left = neighbours(comm)
    with make_one(8) as win:
        waiter = Worker(lambda: win.wait_notify(7, count=5, timeout=50))
        waiter.until_asleep()
        comm.Barrier()
        for number in range(5):
            send(win, right, 7, 8, value=number)
        assert waiter.result() == (7, left, 5, 10)
        assert win.wait_notify(8, count=5, timeout=20).value == 10
        comm.Barrier()


def test_a_sleeping_waiter_costs_less_than_one_percent_of_a_processor(make_one, comm):
    with make_one(8) as win:
        for wait in (
            lambda: win.wait_notify(7, timeout=0.8),
            lambda: win.wait_notify(timeout=0.8),
            lambda: win.wait_notify_all(range(256), timeout=0.8),
        ):
            before = time.thread_time()
            with pytest.raises(rma.NotifyTimeoutError):
                wait()
            used = time.thread_time() - before
            assert used < 0.008, f"{used} s of processor time in 0.8 s"
        comm.Barrier()


def test_a_sleeping_waiter_starts_no_thread_that_burns_in_its_place(make_one, comm):
    with make_one(8) as win:
        before = time.process_time()
        with pytest.raises(rma.NotifyTimeoutError):
            win.wait_notify(7, timeout=1.0)
        used = time.process_time() - before
        # MPI's own threads are counted too, hence the slack.
        assert used < 0.02, f"{used} s of processor time in 1 s"
        comm.Barrier()


def test_waits_of_short_and_long_distance_alternate(make, comm):
    # Spinning and sleeping waits in one chain around the ring.
    right, left = neighbours(comm)
    with make(8) as win:
        comm.Barrier()
        with win.lock_all():
            for number in range(rounds(200, comm)):
                if comm.rank == 0:
                    win.notify(right, notification=1, value=number)
                    assert win.wait_notify(1, timeout=20) == (1, left, 1, number)
                else:
                    note = win.wait_notify(1, timeout=20)
                    win.notify(right, notification=1, value=note.value)
        comm.Barrier()
        assert_usable(win, comm)
