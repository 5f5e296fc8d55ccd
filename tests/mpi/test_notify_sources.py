# SPDX-License-Identifier: Apache-2.0
"""A wait takes from one source or from any, in turn, and names the source where there is one."""

import pytest

import hixl_rma as rma
from support.windows import rounds

pytestmark = pytest.mark.mpi

ANY = rma.ANY_SOURCE


def send_to_zero(win, comm, plan, notification=7):
    """Each rank sends to rank 0 the values that the plan has for it; all have arrived after."""
    with win.lock(0, exclusive=False):
        for value in plan.get(comm.rank, ()):
            win.notify(0, notification=notification, value=value)
    comm.Barrier()


def test_any_source_is_minus_one():
    assert rma.ANY_SOURCE == -1


@pytest.mark.mpi(min_size=2)
def test_a_wait_for_a_source_leaves_the_others_alone(make, comm):
    with make(8) as win:
        send_to_zero(win, comm, {0: [5], 1: [10, 20]})
        if comm.rank == 0:
            assert win.wait_notify(7, source=1, timeout=20) == (7, 1, 1, 30)
            assert (win.notify_count(7), win.notify_count(7, 0), win.notify_count(7, 1)) == (
                2,
                1,
                1,
            )
            assert win.wait_notify(7, source=1, timeout=20) == (7, 1, 1, 0)
            assert win.test_notify(7, source=1) is None
            assert win.wait_notify(7, source=0, timeout=20) == (7, 0, 1, 5)
        comm.Barrier()


@pytest.mark.mpi(min_size=2)
def test_the_source_is_named_where_one_rank_gave_all(make_one, comm):
    with make_one(8) as win:
        send_to_zero(win, comm, {1: [1, 2, 3]})
        if comm.rank == 0:
            assert win.wait_notify(7, count=3, timeout=20) == (7, 1, 3, 6)
        comm.Barrier()


@pytest.mark.mpi(min_size=2)
def test_the_source_is_any_where_several_ranks_gave(make_one, comm):
    with make_one(8) as win:
        send_to_zero(win, comm, {0: [5], 1: [10]})
        if comm.rank == 0:
            assert win.wait_notify(7, count=2, timeout=20) == (7, ANY, 2, 15)
        comm.Barrier()


@pytest.mark.mpi(min_size=2)
def test_any_source_serves_the_origins_in_turn(make_one, comm):
    with make_one(8) as win:
        send_to_zero(win, comm, {rank: [rank] * 3 for rank in range(comm.size)})
        if comm.rank == 0:
            sources = [win.wait_notify(7, timeout=20).source for _ in range(3 * comm.size)]
            first = sources[0]
            assert sources == [(first + n) % comm.size for n in range(3 * comm.size)]
        comm.Barrier()


@pytest.mark.mpi(min_size=3)
def test_the_turn_goes_on_after_the_last_served_origin(make_one, comm):
    with make_one(8) as win:
        send_to_zero(win, comm, {0: [1, 1], 1: [1, 1], 2: [1, 1]})
        if comm.rank == 0:
            assert win.wait_notify(7, source=1, timeout=20).source == 1
            assert win.wait_notify(7, timeout=20).source == 2
            assert win.wait_notify(7, timeout=20).source == 0
            assert win.wait_notify(7, timeout=20).source == 1
            assert win.wait_notify(7, timeout=20).source == 2
            assert win.wait_notify(7, timeout=20).source == 0
        comm.Barrier()


@pytest.mark.mpi(min_size=3)
def test_a_wait_for_several_takes_from_as_few_origins_as_it_needs_in_turn(make_one, comm):
    with make_one(8) as win:
        send_to_zero(win, comm, {0: [1, 1, 1], 1: [10, 10, 10], 2: [100, 100, 100]})
        if comm.rank == 0:
            win.wait_notify(7, source=0, timeout=20)  # 0 is the last served
            assert win.wait_notify(7, count=4, timeout=20) == (7, ANY, 4, 330)
            pending = [win.notify_count(7, rank) for rank in range(3)]
            assert pending == [2, 0, 2]
            # Rank 2 was served last and its values are reported; rank 0 comes next.
            assert win.wait_notify(7, count=2, timeout=20) == (7, 0, 2, 0)
            assert win.wait_notify(7, count=2, timeout=20) == (7, 2, 2, 0)
        comm.Barrier()


@pytest.mark.mpi(min_size=2)
def test_values_of_origins_that_supplied_nothing_are_kept(make_one, comm):
    with make_one(8) as win:
        send_to_zero(win, comm, {0: [5, 5], 1: [70, 70]})
        if comm.rank == 0:
            win.wait_notify(7, source=0, timeout=20)
            assert win.wait_notify(7, timeout=20) == (7, 1, 1, 140)
            assert win.wait_notify(7, timeout=20) == (7, 0, 1, 0)
            assert win.wait_notify(7, timeout=20) == (7, 1, 1, 0)
        comm.Barrier()


@pytest.mark.mpi(min_size=2)
def test_reset_takes_from_all_sources(make_one, comm):
    with make_one(8) as win:
        send_to_zero(win, comm, {rank: [rank, 1] for rank in range(comm.size)})
        if comm.rank == 0:
            total = sum(range(comm.size)) + comm.size
            assert tuple(win.reset_notify(7)) == (2 * comm.size, total)
            assert win.notify_count(7) == 0
        comm.Barrier()


@pytest.mark.mpi(min_size=2)
def test_all_that_all_ranks_send_at_once_is_counted(make, comm):
    times = rounds(3000, comm)
    with make(8) as win:
        comm.Barrier()
        with win.lock_all():
            for number in range(times):
                win.notify((comm.rank + number) % comm.size, notification=number % 5, value=3)
        comm.Barrier()
        expected = {}
        for origin in range(comm.size):
            for number in range(times):
                if (origin + number) % comm.size == comm.rank:
                    key = (number % 5, origin)
                    expected[key] = expected.get(key, 0) + 1
        for (notification, origin), count in expected.items():
            note = win.wait_notify(notification, count=count, source=origin, timeout=20)
            assert note == (notification, origin, count, 3 * count)
        assert win.test_notify() is None
        comm.Barrier()


@pytest.mark.mpi(min_size=2)
def test_a_waiter_takes_what_all_send_while_they_send_it(make, comm):
    times = rounds(2000, comm)
    with make(8) as win:
        comm.Barrier()
        if comm.rank == 0:
            left, value, by_source = times * (comm.size - 1), 0, [0] * comm.size
            while left:
                note = win.wait_notify(7, timeout=20)
                left -= note.count
                value += note.value
                by_source[note.source] += note.count
            assert by_source == [0] + [times] * (comm.size - 1)
            assert value == (comm.size - 1) * times * (times + 1) // 2
            assert win.notify_count(7) == 0
        else:
            with win.lock(0, exclusive=False):
                for number in range(1, times + 1):
                    win.notify(0, notification=7, value=number)
        comm.Barrier()
