# SPDX-License-Identifier: Apache-2.0
"""What type checkers infer for notifications and errors; read by mypy, never run."""

import numpy as np
import numpy.typing as npt
from typing_extensions import assert_type

import hixl_rma as rma


def sending(win: rma.Window, array: npt.NDArray[np.float64]) -> None:
    assert_type(win.notify(1, notification=0), None)
    assert_type(win.put_notify(array, 1, notification=0), None)
    assert_type(win.put_notify(array, 1, 8, notification=0, value=5, order="self"), None)
    assert_type(win.put_notify_v([(array, 0)], 1, notification=0), None)
    assert_type(win.get_notify(array, 1, np.s_[0, :], notification=0), None)
    win.notify(1)  # type: ignore[call-arg]
    win.put_notify(array, 1, 8, 0)  # type: ignore[call-arg]
    win.put_notify(array, 1, notification="seven")  # type: ignore[arg-type]


async def receiving(win: rma.Window) -> None:
    note = win.wait_notify(7, source=1, timeout=5)
    assert_type(note, rma.Notification)
    assert_type(note.id, int)
    assert_type(note.source, int)
    assert_type(note.count, int)
    assert_type(note.value, int)
    number, source, count, value = note
    assert_type(number + source + count + value, int)
    assert_type(win.wait_notify(rma.ANY, count=2, source=rma.ANY_SOURCE), rma.Notification)
    assert_type(win.wait_notify_some(range(8), consume=False), list[rma.Notification])
    assert_type(win.wait_notify_all([1, 2, 3]), list[rma.Notification])
    assert_type(win.test_notify(), rma.Notification | None)
    assert_type(await win.wait_notify_async((1, 2)), rma.Notification)
    assert_type(win.notify_count(1, source=0), int)
    assert_type(win.reset_notify(1), tuple[int, int])
    assert_type(win.notify_fileno(), int)
    win.wait_notify("seven")  # type: ignore[arg-type]
    win.wait_notify(7, 2)  # type: ignore[call-arg]
    print(win.test_notify(7).value)  # type: ignore[union-attr]


def errors(win: rma.Window) -> None:
    try:
        win.wait_notify(7)
    except rma.NotifyTimeoutError as error:
        assert_type(error.peer_rank, int | None)
        assert_type(error.operation, str)
        assert_type(error.errno, int | None)
        assert_type(error.code, str)
        timeout: TimeoutError = error
        assert_type(str(timeout), str)
    except rma.TransportError as error:
        assert_type(error.reasons, dict[str, str])
