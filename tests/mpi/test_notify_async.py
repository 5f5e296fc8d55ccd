# SPDX-License-Identifier: Apache-2.0
"""Notifications in event loops: a descriptor to select on, and an awaitable wait."""

import asyncio
import gc
import os
import select

import pytest

import hixl_rma as rma
from support.windows import neighbours, rounds

pytestmark = pytest.mark.mpi


def send(win, target, *ids, value=1):
    with win.lock(target, exclusive=False):
        for number in ids:
            win.notify(target, notification=number, value=value)


def readable(descriptor, timeout):
    return bool(select.select([descriptor], [], [], timeout)[0])


def drain(win):
    notes = []
    while (note := win.test_notify()) is not None:
        notes.append(note)
    return notes


def test_the_descriptor_is_one_for_the_life_of_the_window(make_one):
    with make_one(8) as win:
        descriptor = win.notify_fileno()
        assert win.notify_fileno() == descriptor
        os.fstat(descriptor)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_the_descriptor_is_quiet_until_a_notification_arrives(make, comm):
    right, left = neighbours(comm)
    with make(8) as win:
        descriptor = win.notify_fileno()
        drain(win)
        assert not readable(descriptor, 0.02)
        comm.Barrier()
        send(win, right, 3)
        assert readable(descriptor, 20)
        assert win.wait_notify(3, timeout=20).source == left
        comm.Barrier()


def test_a_loop_on_the_descriptor_sees_every_notification(make, comm):
    right, left = neighbours(comm)
    times = rounds(300, comm)
    with make(8) as win:
        descriptor = win.notify_fileno()
        comm.Barrier()
        seen = {}
        sent = 0
        while sent < times or sum(seen.values()) < times:
            if sent < times:  # send a few between two looks
                for _ in range(min(3, times - sent)):
                    send(win, right, sent % 5)
                    sent += 1
            else:
                assert readable(descriptor, 20), f"{seen} of {times}"
            for note in drain(win):
                assert note.source == left
                seen[note.id] = seen.get(note.id, 0) + note.count
        assert seen == {n: len(range(n, times, 5)) for n in range(5) if n < times}
        comm.Barrier()


def test_after_draining_the_descriptor_is_quiet_again(make_one, comm):
    right, _ = neighbours(comm)
    with make_one(8) as win:
        descriptor = win.notify_fileno()
        for _ in range(rounds(10, comm)):
            comm.Barrier()
            send(win, right, 3, 4)
            comm.Barrier()
            assert readable(descriptor, 20)
            assert len(drain(win)) == 2
            assert not readable(descriptor, 0.01)


def test_what_arrived_before_the_first_look_makes_the_descriptor_readable(make_one, comm):
    right, _ = neighbours(comm)
    with make_one(8) as win:
        send(win, right, 3)
        comm.Barrier()
        assert readable(win.notify_fileno(), 20)
        comm.Barrier()


def test_a_wait_may_be_awaited(make, comm):
    right, left = neighbours(comm)

    async def exchange(win):
        send(win, right, 3, value=8)
        return await win.wait_notify_async(3, timeout=20)

    with make(8) as win:
        assert asyncio.run(exchange(win)) == (3, left, 1, 8)
        assert win.test_notify(3) is None
        comm.Barrier()


def test_other_tasks_run_while_one_awaits(make_one, comm):
    right, left = neighbours(comm)

    async def main(win):
        waiting = asyncio.create_task(win.wait_notify_async(range(3, 9), count=2, timeout=20))
        ticks = 0
        for _ in range(20):
            await asyncio.sleep(0)
            ticks += 1
        assert not waiting.done()
        comm.Barrier()
        send(win, right, 5, 6, 5)
        note = await waiting
        return ticks, note

    with make_one(8) as win:
        ticks, note = asyncio.run(main(win))
        assert ticks == 20
        assert note == (5, left, 2, 2)
        assert win.wait_notify(6, timeout=20).count == 1
        comm.Barrier()


def test_many_tasks_await_one_id_each(make_one, comm):
    right, left = neighbours(comm)

    async def main(win):
        tasks = [asyncio.create_task(win.wait_notify_async(n, timeout=20)) for n in range(50)]
        await asyncio.sleep(0)
        send(win, right, *reversed(range(50)))
        return await asyncio.gather(*tasks)

    with make_one(8) as win:
        notes = asyncio.run(main(win))
        assert notes == [(n, left, 1, 1) for n in range(50)]
        comm.Barrier()


def test_an_awaited_wait_times_out_and_consumes_nothing(make_one, comm):
    right, _ = neighbours(comm)
    with make_one(8) as win:
        send(win, right, 3)
        comm.Barrier()
        with pytest.raises(rma.NotifyTimeoutError):
            asyncio.run(win.wait_notify_async(3, count=2, timeout=0.05))
        assert win.notify_count(3) == 1
        comm.Barrier()


def test_a_cancelled_wait_consumes_nothing(make_one, comm):
    right, left = neighbours(comm)

    async def main(win):
        waiting = asyncio.create_task(win.wait_notify_async(3, timeout=20))
        await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        comm.Barrier()
        send(win, right, 3)
        return await win.wait_notify_async(3, timeout=20)

    with make_one(8) as win:
        assert asyncio.run(main(win)).source == left
        gc.collect()
        comm.Barrier()


def test_awaiting_checks_its_arguments(make_one, comm):
    with make_one(8) as win:
        for arguments in ({"count": 0}, {"timeout": -1}):
            with pytest.raises(rma.ArgumentError):
                asyncio.run(await_with(win, 3, **arguments))
        with pytest.raises(rma.RangeError):
            asyncio.run(await_with(win, 300))
        comm.Barrier()


async def await_with(win, *arguments, **options):
    return await win.wait_notify_async(*arguments, **options)


def test_several_event_loops_may_follow_one_another(make_one, comm):
    right, left = neighbours(comm)
    with make_one(8) as win:
        for number in range(rounds(5, comm)):
            send(win, right, 3, value=number)
            assert asyncio.run(await_with(win, 3, timeout=20)) == (3, left, 1, number)
            comm.Barrier()
