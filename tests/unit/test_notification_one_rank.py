# SPDX-License-Identifier: Apache-2.0
"""Notifications of a rank to itself have all their rules."""

import asyncio
import gc
import select

import numpy as np
import pytest

import hixl_rma as rma
from hixl_rma.bootstrap import LocalBootstrap
from support.threads import Worker

pytestmark = [pytest.mark.asan, pytest.mark.tsan]


@pytest.fixture
def win():
    with rma.Window.allocate(64, comm=LocalBootstrap(), notifications=32) as window:
        window.lock_all()
        yield window
        window.unlock_all()


def test_a_notification_is_a_tuple_with_names(win):
    win.notify(0, notification=3, value=9)
    note = win.wait_notify(3, timeout=5)
    assert note == (3, 0, 1, 9)
    assert (note.id, note.source, note.count, note.value) == (3, 0, 1, 9)
    assert isinstance(note, tuple)
    assert type(note).__name__ == "Notification"
    for text in ("id=3", "source=0", "count=1", "value=9"):
        assert text in repr(note)


def test_counts_and_values_add_up_and_are_consumed_apart(win):
    for value in (5, 6, 7):
        win.notify(0, notification=3, value=value)
    assert win.notify_count(3) == 3
    assert [win.wait_notify(3, timeout=5).value for _ in range(3)] == [18, 0, 0]
    assert win.notify_count(3) == 0


def test_looking_and_resetting(win):
    for value in (5, 6):
        win.notify(0, notification=3, value=value)
    assert win.wait_notify(3, count=2, consume=False, timeout=5).value == 11
    assert win.test_notify(3, consume=False).value == 11
    assert tuple(win.reset_notify(3)) == (2, 11)
    assert win.test_notify(3) is None


def test_some_and_all(win):
    for number in (3, 4, 4):
        win.notify(0, notification=number)
    with pytest.raises(rma.NotifyTimeoutError):
        win.wait_notify_all([3, 4, 5], timeout=0.01)
    assert sorted(n.id for n in win.wait_notify_some(range(32), timeout=5)) == [3, 4]
    win.notify(0, notification=3)
    assert win.wait_notify_all((4, 3), timeout=5) == [(4, 0, 1, 0), (3, 0, 1, 1)]


def test_every_call_that_notifies_shows_its_payload(win):
    origin = np.arange(8, dtype="u1")
    win.put_notify(origin, 0, 0, notification=1)
    win.rput_notify(origin, 0, 8, notification=1).wait(timeout=5)
    win.put_notify_v([(origin[:4], 16), (origin[4:], 20)], 0, notification=1)
    assert win.wait_notify(1, count=3, timeout=5).value == 3
    assert np.array_equal(win.local[:24].reshape(3, 8), [origin] * 3)
    back = np.zeros(8, "u1")
    win.get_notify(back, 0, 8, notification=2)
    win.flush(0)
    assert win.wait_notify(2, timeout=5).count == 1
    assert np.array_equal(back, origin)


def test_a_failed_put_does_not_notify(win):
    with pytest.raises(rma.RangeError):
        win.put_notify(bytes(8), 0, 60, notification=1)
    with pytest.raises(rma.RangeError):
        win.put_notify_v([(bytes(8), 0), (bytes(8), 60)], 0, notification=1)
    assert win.test_notify(1) is None


def test_a_notification_needs_an_access_epoch():
    with rma.Window.allocate(8, comm=LocalBootstrap()) as window:
        with pytest.raises(rma.EpochError):
            window.notify(0, notification=1)
        assert window.test_notify() is None


def test_a_thread_is_woken(win):
    waiter = Worker(lambda: win.wait_notify(3, count=2, timeout=30))
    waiter.until_asleep()
    win.notify(0, notification=3)
    win.notify(0, notification=3)
    assert waiter.result() == (3, 0, 2, 2)


def test_the_text_of_a_timeout_says_what_was_missing(win):
    win.notify(0, notification=3)
    with pytest.raises(rma.NotifyTimeoutError, match="3") as caught:
        win.wait_notify(3, count=17, timeout=0.01)
    assert "17" in str(caught.value)
    assert caught.value.code == "NotifyTimeout"
    assert isinstance(caught.value, rma.RmaTimeoutError)


def test_the_descriptor_is_readable_when_there_is_something_to_look_at(win):
    descriptor = win.notify_fileno()
    win.notify(0, notification=3)
    assert select.select([descriptor], [], [], 5)[0]
    assert win.test_notify().id == 3
    assert win.test_notify() is None
    assert not select.select([descriptor], [], [], 0.01)[0]


def test_a_wait_may_be_awaited(win):
    async def main():
        task = asyncio.create_task(win.wait_notify_async(3, timeout=5))
        await asyncio.sleep(0)
        win.notify(0, notification=3, value=4)
        return await task

    assert asyncio.run(main()) == (3, 0, 1, 4)
    gc.collect()


def test_waiting_for_a_source_that_does_not_exist_is_refused(win):
    with pytest.raises(rma.RangeError):
        win.wait_notify(3, source=1, timeout=1)
