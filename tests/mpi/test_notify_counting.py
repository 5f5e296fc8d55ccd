# SPDX-License-Identifier: Apache-2.0
"""Notifications count: none is lost, none is seen twice, and values add up."""

import numpy as np
import pytest

import hixl_rma as rma
from support.windows import neighbours, rounds

pytestmark = pytest.mark.mpi

MOD = 1 << 64


def send(win, target, *values, notification=7):
    with win.lock(target, exclusive=False):
        for value in values:
            win.notify(target, notification=notification, value=value)


def test_a_notification_tells_id_source_count_and_value(make, comm):
    right, left = neighbours(comm)
    with make(8) as win:
        send(win, right, 42)
        note = win.wait_notify(7, timeout=20)
        assert (note.id, note.source, note.count, note.value) == (7, left, 1, 42)
        assert note == (7, left, 1, 42)
        assert type(note) is rma.Notification
        comm.Barrier()


def test_the_value_is_one_by_default(make_one, comm):
    right, _ = neighbours(comm)
    with make_one(8) as win:
        with win.lock(right):
            win.notify(right, notification=0)
            win.put_notify(np.ones(1, "u1"), right, 0, notification=0)
        note = win.wait_notify(0, count=2, timeout=20)
        assert (note.count, note.value) == (2, 2)
        comm.Barrier()


def test_surplus_values_are_reported_with_the_first_and_counts_one_by_one(make, comm):
    right, _ = neighbours(comm)
    with make(8) as win:
        send(win, right, 5, 6, 7)
        comm.Barrier()
        notes = [win.wait_notify(7, timeout=20) for _ in range(3)]
        assert [note.count for note in notes] == [1, 1, 1]
        assert [note.value for note in notes] == [18, 0, 0]
        assert win.test_notify(7) is None
        comm.Barrier()


def test_values_that_arrive_later_are_reported_later(make_one, comm):
    right, _ = neighbours(comm)
    with make_one(8) as win:
        send(win, right, 5, 6)
        comm.Barrier()
        assert win.wait_notify(7, timeout=20).value == 11
        comm.Barrier()
        send(win, right, 7)
        comm.Barrier()
        assert win.wait_notify(7, timeout=20).value == 7
        assert win.wait_notify(7, timeout=20).value == 0
        comm.Barrier()


def test_a_wait_for_several_takes_exactly_that_many(make_one, comm):
    right, left = neighbours(comm)
    with make_one(8) as win:
        send(win, right, *range(10))
        comm.Barrier()
        assert win.wait_notify(7, count=4, timeout=20) == (7, left, 4, 45)
        assert win.notify_count(7) == 6
        assert win.wait_notify(7, count=6, timeout=20) == (7, left, 6, 0)
        assert win.notify_count(7) == 0
        comm.Barrier()


def test_a_value_of_zero_is_counted(make_one, comm):
    right, left = neighbours(comm)
    with make_one(8) as win:
        send(win, right, 0, 0)
        assert win.wait_notify(7, count=2, timeout=20) == (7, left, 2, 0)
        comm.Barrier()


@pytest.mark.parametrize(
    "values", [[MOD - 1], [MOD - 1, 1], [MOD - 1, MOD - 1], [1 << 63, 1 << 63, 5]]
)
def test_values_are_summed_modulo_two_to_the_64(make_one, comm, values):
    right, _ = neighbours(comm)
    with make_one(8) as win:
        send(win, right, *values)
        note = win.wait_notify(7, count=len(values), timeout=20)
        assert note.value == sum(values) % MOD
        comm.Barrier()


def test_looking_without_consuming_changes_nothing(make_one, comm):
    right, left = neighbours(comm)
    with make_one(8) as win:
        send(win, right, 5, 6, 7)
        comm.Barrier()
        for _ in range(3):
            note = win.wait_notify(7, count=2, consume=False, timeout=20)
            assert (note.id, note.source, note.value) == (7, left, 18)
            assert note.count >= 2
            assert win.test_notify(7, consume=False).value == 18
        assert win.notify_count(7) == 3
        assert win.wait_notify(7, count=3, timeout=20) == (7, left, 3, 18)
        comm.Barrier()


def test_notify_count_counts_what_is_pending(make_one, comm):
    right, left = neighbours(comm)
    with make_one(8) as win:
        assert win.notify_count(7) == 0
        comm.Barrier()
        send(win, right, 1, 1, 1)
        send(win, right, 1, notification=8)
        comm.Barrier()
        assert win.notify_count(7) == 3
        assert win.notify_count(7, left) == 3
        assert win.notify_count(7, source=left) == 3
        assert win.notify_count(8) == 1
        assert win.notify_count(9) == 0
        win.wait_notify(7, timeout=20)
        assert win.notify_count(7) == 2
        comm.Barrier()


def test_reset_takes_all_that_is_pending_and_tells_how_much(make_one, comm):
    right, _ = neighbours(comm)
    with make_one(8) as win:
        assert tuple(win.reset_notify(7)) == (0, 0)
        comm.Barrier()
        send(win, right, 5, 6, 7)
        send(win, right, 1, notification=8)
        comm.Barrier()
        assert tuple(win.reset_notify(7)) == (3, 18)
        assert win.notify_count(7) == 0
        assert tuple(win.reset_notify(7)) == (0, 0)
        assert win.notify_count(8) == 1
        comm.Barrier()
        send(win, right, 4)
        comm.Barrier()
        assert win.wait_notify(7, timeout=20).value == 4
        comm.Barrier()


def test_reset_after_a_partial_wait_gives_the_rest(make_one, comm):
    right, _ = neighbours(comm)
    with make_one(8) as win:
        send(win, right, 5, 6, 7)
        comm.Barrier()
        win.wait_notify(7, timeout=20)
        assert tuple(win.reset_notify(7)) == (2, 0)
        comm.Barrier()


def test_testing_consumes_like_waiting_and_never_waits(make_one, comm):
    right, left = neighbours(comm)
    with make_one(8) as win:
        assert win.test_notify(7) is None
        assert win.test_notify() is None
        comm.Barrier()
        send(win, right, 3, 4)
        comm.Barrier()
        assert win.test_notify(7, count=3) is None
        assert win.test_notify(7, count=2) == (7, left, 2, 7)
        assert win.test_notify(7) is None
        comm.Barrier()


def test_more_notifications_than_any_queue_would_hold_are_all_counted(make, comm):
    right, left = neighbours(comm)
    times = rounds(20_000, comm)
    with make(8) as win:
        with win.lock(right, exclusive=False):
            for number in range(times):
                win.notify(right, notification=7, value=number)
        comm.Barrier()
        note = win.wait_notify(7, count=times, timeout=20)
        assert note == (7, left, times, times * (times - 1) // 2)
        assert win.notify_count(7) == 0
        comm.Barrier()


def test_ids_are_independent_up_to_the_last(make_one, comm):
    right, left = neighbours(comm)
    with make_one(8, notifications=300) as win:
        with win.lock(right):
            for number in range(300):
                for _ in range(number % 3 + 1):
                    win.notify(right, notification=number, value=number)
        comm.Barrier()
        for number in reversed(range(300)):
            times = number % 3 + 1
            wanted = (number, left, times, number * times)
            assert win.wait_notify(number, count=times, timeout=20) == wanted
        assert win.test_notify() is None
        comm.Barrier()


def test_notifications_to_oneself_are_like_any_other(make, comm):
    with make(8) as win:
        with win.lock(comm.rank):
            win.put_notify(np.full(8, 9, "u1"), comm.rank, 0, notification=7, value=3)
            assert win.wait_notify(7, timeout=20) == (7, comm.rank, 1, 3)
            assert (win.local == 9).all()
        comm.Barrier()


def test_counts_continue_over_many_epochs_of_all_kinds(make_one, comm):
    right, left = neighbours(comm)
    with make_one(8) as win:
        for number in range(rounds(40, comm)):
            with win.fence():
                win.notify(right, notification=7, value=number)
            win.post([left])
            with win.start([right]):
                win.notify(right, notification=7, value=number)
            win.wait()
            send(win, right, number)
            assert win.wait_notify(7, count=3, timeout=20) == (7, left, 3, 3 * number)
            comm.Barrier()


def test_one_notification_may_be_counted_before_its_epoch_ends(make, comm):
    right, left = neighbours(comm)
    with make(8) as win:
        comm.Barrier()
        with win.lock_all():
            win.notify(right, notification=7)
            assert win.wait_notify(7, timeout=20).source == left
            comm.Barrier()
