# SPDX-License-Identifier: Apache-2.0
"""Arguments of the notification calls that are out of range or of the wrong type."""

import numpy as np
import pytest

import hixl_rma as rma
from support.windows import assert_bytes, assert_usable, neighbours, pattern, raw

pytestmark = pytest.mark.mpi

IDS = 16

BAD_IDS = {
    "id of the size": (IDS, rma.RangeError),
    "negative id": (-2, rma.RangeError),
    "id beyond 32 bits": (1 << 32, rma.RangeError),
    "id beyond 64 bits": (1 << 70, rma.RangeError),
    "negative id beyond 64 bits": (-(1 << 70), rma.RangeError),
    "float id": (1.0, rma.ArgumentTypeError),
    "bool id": (True, rma.ArgumentTypeError),
    "numpy bool id": (np.True_, rma.ArgumentTypeError),
    "text id": ("1", rma.ArgumentTypeError),
    "no id": (None, rma.ArgumentTypeError),
}

BAD_SELECTIONS = {
    "list with a bad id": ([1, IDS], rma.RangeError),
    "range beyond the end": (range(IDS + 1), rma.RangeError),
    "negative range": (range(-3, 2), rma.RangeError),
    "list with a float": ([1, 2.0], rma.ArgumentTypeError),
    "list with a bool": ([1, True], rma.ArgumentTypeError),
    "list with a text": (["1"], rma.ArgumentTypeError),
    "array of floats": (np.array([1.0]), rma.ArgumentTypeError),
}


def senders(win, target):
    origin = pattern(9, 8)
    return [
        lambda n: win.notify(target, notification=n),
        lambda n: win.put_notify(origin, target, 0, notification=n),
        lambda n: win.rput_notify(origin, target, 0, notification=n),
        lambda n: win.put_notify_v([(origin, 0)], target, notification=n),
        lambda n: win.get_notify(origin, target, 0, notification=n),
    ]


def receivers(win):
    return [
        lambda n: win.wait_notify(n, timeout=1),
        lambda n: win.wait_notify_some(n, timeout=1),
        lambda n: win.wait_notify_all(n, timeout=1),
        lambda n: win.test_notify(n),
    ]


def assert_refused(calls, value, expected):
    for number, call in enumerate(calls):
        with pytest.raises(expected) as caught:
            call(value)
        assert type(caught.value) is expected, f"call {number}: {caught.value!r}"
        if expected is rma.RangeError and isinstance(value, int):
            assert str(value) in str(caught.value)


@pytest.fixture
def win(make_one, comm):
    with make_one(64, notifications=IDS) as window:
        raw(window)[:] = pattern(comm.rank, 64)
        comm.Barrier()
        yield window
        comm.Barrier()
        assert_bytes(raw(window), pattern(comm.rank, 64))
        assert window.test_notify() is None
        assert_usable(window, comm)


@pytest.mark.parametrize("case", BAD_IDS)
def test_a_bad_id_is_a_typed_error(win, comm, case):
    value, expected = BAD_IDS[case]
    right, _ = neighbours(comm)
    with win.lock(right):
        assert_refused(senders(win, right), value, expected)
    single = [lambda n: win.notify_count(n), lambda n: win.reset_notify(n)]
    assert_refused(receivers(win) + single, value, expected)


@pytest.mark.parametrize("case", BAD_SELECTIONS)
def test_a_bad_id_in_a_selection_is_a_typed_error(win, case):
    value, expected = BAD_SELECTIONS[case]
    assert_refused(receivers(win), value, expected)


def test_any_is_no_id_to_send_to(win, comm):
    right, _ = neighbours(comm)
    with win.lock(right):
        for call in senders(win, right):
            with pytest.raises((rma.RangeError, rma.ArgumentTypeError)):
                call(rma.ANY)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (-1, rma.ArgumentError),
        (1 << 64, rma.ArgumentError),
        (1 << 70, rma.ArgumentError),
        (1.0, rma.ArgumentTypeError),
        (True, rma.ArgumentTypeError),
        ("1", rma.ArgumentTypeError),
        (None, rma.ArgumentTypeError),
    ],
    ids=str,
)
def test_a_value_that_is_no_64_bit_number_is_a_typed_error(win, comm, value, expected):
    right, _ = neighbours(comm)
    origin = pattern(9, 8)
    with win.lock(right):
        for call in (
            lambda v: win.notify(right, notification=1, value=v),
            lambda v: win.put_notify(origin, right, 0, notification=1, value=v),
            lambda v: win.put_notify_v([(origin, 0)], right, notification=1, value=v),
        ):
            with pytest.raises(expected) as caught:
                call(value)
            assert type(caught.value) is expected


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, rma.ArgumentError),
        (-1, rma.ArgumentError),
        (1 << 64, rma.ArgumentError),
        (1.0, rma.ArgumentTypeError),
        (True, rma.ArgumentTypeError),
        ("1", rma.ArgumentTypeError),
        (None, rma.ArgumentTypeError),
    ],
    ids=str,
)
def test_a_count_that_is_no_positive_number_is_a_typed_error(win, count, expected):
    for call in (
        lambda c: win.wait_notify(1, count=c, timeout=1),
        lambda c: win.wait_notify_some([1], count=c, timeout=1),
        lambda c: win.wait_notify_all([1], count=c, timeout=1),
        lambda c: win.test_notify(1, count=c),
    ):
        with pytest.raises(expected) as caught:
            call(count)
        assert type(caught.value) is expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (-2, rma.RangeError),
        (1000, rma.RangeError),
        (1 << 70, rma.RangeError),
        (0.0, rma.ArgumentTypeError),
        (False, rma.ArgumentTypeError),
        ("0", rma.ArgumentTypeError),
        (None, rma.ArgumentTypeError),
    ],
    ids=str,
)
def test_a_source_that_is_no_rank_is_a_typed_error(win, source, expected):
    for call in (
        lambda s: win.wait_notify(1, source=s, timeout=1),
        lambda s: win.wait_notify_some([1], source=s, timeout=1),
        lambda s: win.wait_notify_all([1], source=s, timeout=1),
        lambda s: win.test_notify(1, source=s),
        lambda s: win.notify_count(1, source=s),
    ):
        with pytest.raises(expected) as caught:
            call(source)
        assert type(caught.value) is expected


@pytest.mark.parametrize(
    ("timeout", "expected"),
    [
        (-1, rma.ArgumentError),
        (-1e-9, rma.ArgumentError),
        (float("nan"), rma.ArgumentError),
        (float("inf"), rma.ArgumentError),
        ("1", rma.ArgumentTypeError),
        (True, rma.ArgumentTypeError),
        ([1], rma.ArgumentTypeError),
        (1j, rma.ArgumentTypeError),
    ],
    ids=str,
)
def test_a_timeout_that_is_no_time_is_a_typed_error(win, comm, timeout, expected):
    right, _ = neighbours(comm)
    for call in (
        lambda t: win.wait_notify(1, timeout=t),
        lambda t: win.wait_notify_some([1], timeout=t),
        lambda t: win.wait_notify_all([1], timeout=t),
        lambda t: win.fence(timeout=t),
        lambda t: win.lock(right, timeout=t),
        lambda t: win.lock_all(timeout=t),
        lambda t: win.start([right], timeout=t),
        lambda t: win.free(timeout=t),
    ):
        with pytest.raises(expected) as caught:
            call(timeout)
        assert type(caught.value) is expected


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("", rma.ArgumentError),
        ("none", rma.ArgumentError),
        ("ALL", rma.ArgumentError),
        (None, rma.ArgumentTypeError),
        (1, rma.ArgumentTypeError),
        (True, rma.ArgumentTypeError),
    ],
    ids=str,
)
def test_an_order_that_is_none_is_a_typed_error(win, comm, order, expected):
    right, _ = neighbours(comm)
    with win.lock(right), pytest.raises(expected) as caught:
        win.put_notify(pattern(9, 8), right, 0, notification=1, order=order)
    assert type(caught.value) is expected


def test_the_notification_of_a_put_has_no_default(win, comm):
    right, _ = neighbours(comm)
    with win.lock(right):
        with pytest.raises(TypeError):
            win.put_notify(pattern(9, 8), right, 0)
        with pytest.raises(TypeError):
            win.put_notify(pattern(9, 8), right, 0, 1)
        with pytest.raises(TypeError):
            win.notify(right)
