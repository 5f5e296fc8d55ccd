# SPDX-License-Identifier: Apache-2.0
"""Waits over several ids: any, some, all, by ranges and sequences."""

import numpy as np
import pytest

import hixl_rma as rma
from support.windows import neighbours

pytestmark = pytest.mark.mpi


@pytest.fixture
def win(sync_only):
    return sync_only


def send(win, comm, *ids, value=1):
    """Notify the right-hand neighbour: nothing has arrived before, everything after."""
    right, _ = neighbours(comm)
    comm.Barrier()
    with win.lock(right):
        for number in ids:
            win.notify(right, notification=number, value=value)
    comm.Barrier()


SELECTIONS = {
    "range": range(3, 9),
    "range with steps": range(1, 20, 5),
    "range backwards": range(8, 2, -1),
    "list": [2, 6, 11],
    "tuple": (6, 2),
    "array": np.array([6, 11, 200]),
    "any": rma.ANY,
}


@pytest.mark.parametrize("case", SELECTIONS)
def test_a_wait_for_several_ids_tells_which_one_came(win, comm, case):
    _, left = neighbours(comm)
    send(win, comm, 6, value=4)
    assert win.wait_notify(SELECTIONS[case], timeout=20) == (6, left, 1, 4)
    assert win.test_notify(SELECTIONS[case]) is None


def test_any_id_is_the_default(win, comm):
    send(win, comm, 200)
    assert win.wait_notify(timeout=20).id == 200


def test_ids_outside_the_selection_stay(win, comm):
    send(win, comm, 2, 9, 10)
    assert win.test_notify(range(3, 9)) is None
    with pytest.raises(rma.NotifyTimeoutError):
        win.wait_notify([3, 4], timeout=0.01)
    assert [win.notify_count(n) for n in (2, 9, 10)] == [1, 1, 1]


def test_a_count_is_that_of_one_id_not_of_all_together(win, comm):
    send(win, comm, 3, 4, 5)
    assert win.test_notify(range(3, 6), count=2) is None
    send(win, comm, 4)
    assert win.test_notify(range(3, 6), count=2).id == 4
    assert [win.notify_count(n) for n in (3, 4, 5)] == [1, 0, 1]


@pytest.mark.parametrize(
    "selection", [rma.ANY, range(256), [5, 3, 9]], ids=["any", "range", "list"]
)
def test_waiting_for_several_ids_is_fair(win, comm, selection):
    send(win, comm, *[3] * 30, *[5] * 30, *[9] * 30)
    served = [win.wait_notify(selection, timeout=20).id for _ in range(9)]
    assert set(served) == {3, 5, 9}


def test_some_returns_every_id_that_is_satisfied(win, comm):
    _, left = neighbours(comm)
    send(win, comm, 3, 3, 5, 9, value=2)
    notes = win.wait_notify_some(range(256), timeout=20)
    assert isinstance(notes, list)
    assert sorted(notes) == [(3, left, 1, 4), (5, left, 1, 2), (9, left, 1, 2)]
    assert win.notify_count(3) == 1
    assert win.wait_notify_some(range(256), timeout=20) == [(3, left, 1, 0)]


def test_some_of_any_id_is_every_id(win, comm):
    send(win, comm, 3, 255)
    assert sorted(note.id for note in win.wait_notify_some(timeout=20)) == [3, 255]


def test_some_leaves_the_ids_that_are_not_satisfied(win, comm):
    send(win, comm, 3, 3, 5)
    assert [note.id for note in win.wait_notify_some([3, 5], count=2, timeout=20)] == [3]
    assert win.notify_count(5) == 1


def test_some_without_consuming_leaves_everything(win, comm):
    send(win, comm, 3, 5)
    for _ in range(2):
        notes = win.wait_notify_some([3, 5, 7], consume=False, timeout=20)
        assert sorted(note.id for note in notes) == [3, 5]
    assert (win.notify_count(3), win.notify_count(5)) == (1, 1)


def test_all_returns_one_notification_for_each_id_in_the_order_asked(win, comm):
    _, left = neighbours(comm)
    send(win, comm, 3, 4, 4, 5, value=2)
    notes = win.wait_notify_all([5, 3, 4], timeout=20)
    assert notes == [(5, left, 1, 2), (3, left, 1, 2), (4, left, 1, 4)]
    assert win.notify_count(4) == 1


def test_all_takes_every_id_or_nothing(win, comm):
    send(win, comm, 3, 4)
    with pytest.raises(rma.NotifyTimeoutError):
        win.wait_notify_all([3, 4, 5], timeout=0.01)
    assert [win.notify_count(n) for n in (3, 4, 5)] == [1, 1, 0]
    send(win, comm, 5)
    assert [note.id for note in win.wait_notify_all(range(3, 6), timeout=20)] == [3, 4, 5]


def test_all_without_consuming_leaves_everything(win, comm):
    send(win, comm, 3, 4)
    assert len(win.wait_notify_all([3, 4], consume=False, timeout=20)) == 2
    assert len(win.wait_notify_all([3, 4], timeout=20)) == 2


def test_all_takes_the_count_of_each(win, comm):
    send(win, comm, 3, 3, 3, 4, 4)
    assert [note.count for note in win.wait_notify_all((3, 4), count=2, timeout=20)] == [2, 2]
    assert (win.notify_count(3), win.notify_count(4)) == (1, 0)


def test_a_single_id_may_be_given_to_some_and_all(win, comm):
    send(win, comm, 3, 3)
    assert [note.id for note in win.wait_notify_some(3, timeout=20)] == [3]
    assert [note.id for note in win.wait_notify_all(3, timeout=20)] == [3]


@pytest.mark.mpi(min_size=2)
def test_all_may_be_asked_of_one_source(win, comm):
    _, left = neighbours(comm)
    with win.lock(comm.rank):
        win.notify(comm.rank, notification=3)
        win.notify(comm.rank, notification=4)
    send(win, comm, 3)
    with pytest.raises(rma.NotifyTimeoutError):
        win.wait_notify_all([3, 4], source=left, timeout=0.01)
    assert win.notify_count(3) == 2
    send(win, comm, 4)
    assert [note.source for note in win.wait_notify_all([3, 4], source=left, timeout=20)] == [
        left
    ] * 2
    assert (win.notify_count(3, comm.rank), win.notify_count(4, comm.rank)) == (1, 1)


@pytest.mark.parametrize("nothing", [[], (), range(0), range(5, 3)], ids=str)
def test_an_empty_selection_is_refused_and_never_waits(win, comm, nothing):
    for call in (win.wait_notify, win.wait_notify_some, win.wait_notify_all):
        with pytest.raises(rma.ArgumentError):
            call(nothing, timeout=20)
    with pytest.raises(rma.ArgumentError):
        win.test_notify(nothing)
    comm.Barrier()


def test_several_ids_of_many_sources_are_all_found_among_many(make_one, comm):
    with make_one(8, notifications=4096) as win:
        ids = range(7, 4096, 511)
        for target in range(comm.size):
            with win.lock(target, exclusive=False):
                for number in ids:
                    win.notify(target, notification=number, value=number)
        comm.Barrier()
        notes = win.wait_notify_all(ids, count=comm.size, timeout=20)
        assert [note.id for note in notes] == list(ids)
        assert [note.value for note in notes] == [comm.size * number for number in ids]
        assert win.test_notify() is None
        comm.Barrier()
