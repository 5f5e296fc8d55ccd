# SPDX-License-Identifier: Apache-2.0
"""What type checkers infer for windows; read by mypy, never run.

A line with ``type: ignore`` proves that the mistake in it is found: an ignore that nothing needs is
an error too.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import assert_type

import hixl_rma as rma
from hixl_rma import EpochGuard


def making(buffer: bytearray, array: npt.NDArray[np.float32]) -> None:
    assert_type(rma.Window.allocate(10), rma.Window)
    assert_type(rma.Window.allocate((3, 4), "f4", notifications=8), rma.Window)
    assert_type(rma.Window.allocate([3, 4], np.float32, disp_unit=4, comm=None), rma.Window)
    assert_type(rma.Window.create(buffer, comm=rma.LocalBootstrap()), rma.Window)
    assert_type(rma.Window.create(array), rma.Window)
    with rma.Window.allocate(8) as win:
        assert_type(win, rma.Window)
        assert_type(win.free(timeout=1), None)
    rma.Window.allocate("ten")  # type: ignore[arg-type]
    rma.Window.allocate(10, notifications="many")  # type: ignore[arg-type]
    rma.Window.create()  # type: ignore[call-arg]
    rma.Window.create(None)  # type: ignore[arg-type]


def facts(win: rma.Window) -> None:
    assert_type(win.rank, int)
    assert_type(win.size, int)
    assert_type(win.local, npt.NDArray[Any])
    assert_type(win.remote(1), npt.NDArray[Any])
    assert_type(win.transports, tuple[str, ...])
    assert_type(win.failed_ranks, tuple[int, ...])
    assert_type(win.stats(), rma.WindowStats)
    assert_type(win.stats().peers[0].bytes_put, int)
    assert_type(win.stats().waits["fence"].seconds, float)
    assert_type(win.stats().by_transport(), dict[str, rma.TransportStats])


def operations(
    win: rma.Window, array: npt.NDArray[np.float64], table: npt.NDArray[np.uint64]
) -> None:
    assert_type(win.put(array, 1), None)
    assert_type(win.put(array, 1, 8), None)
    win.put(bytearray(8), np.int64(1), np.int64(2))
    win.put(array, 1, np.s_[:, 3])
    win.put(array, 1, np.s_[..., 1:2, None])
    assert_type(win.get(array, target_rank=0, target_disp=3), None)
    assert_type(win.put_v([(array, 0), (bytearray(8), 8)], 1), None)
    assert_type(win.get_v(table, 1), None)
    assert_type(win.accumulate(array, 1, 0, op="max"), None)
    assert_type(win.get_accumulate(array, array, 1, op="no_op"), None)
    assert_type(win.fetch_and_op(array, array, 1, 0, op="sum"), None)
    assert_type(win.compare_and_swap(array, array, array, 1, 0), None)
    win.put()  # type: ignore[call-arg]
    win.put(array, "right")  # type: ignore[arg-type]
    win.put(array, 1, "column")  # type: ignore[arg-type]
    win.put(1.5, 1)  # type: ignore[arg-type]
    win.put_v([array], 1)  # type: ignore[list-item]
    win.accumulate(array, 1, 0, "max")  # type: ignore[call-arg]


async def requests(win: rma.Window, array: npt.NDArray[np.float64]) -> None:
    for request in (
        win.rput(array, 1),
        win.rget(array, 1, 0),
        win.raccumulate(array, 1, op="sum"),
        win.rget_accumulate(array, array, 1),
        win.rput_notify(array, 1, notification=3),
    ):
        assert_type(request, rma.Request)
        assert_type(request.test(), bool)
        assert_type(request.done, bool)
        assert_type(request.status, str)
        assert_type(request.wait(timeout=1.5), None)
        assert_type(await request, None)
        request.wait("soon")  # type: ignore[arg-type]


def epochs(win: rma.Window) -> None:
    assert_type(win.fence(), EpochGuard)
    assert_type(win.fence(rma.NOPRECEDE | rma.NOSTORE, timeout=2), EpochGuard)
    assert_type(win.start([0, 1]), EpochGuard)
    assert_type(win.post(range(3)), EpochGuard)
    assert_type(win.complete(timeout=1), None)
    assert_type(win.wait(), None)
    assert_type(win.test(), bool)
    assert_type(win.lock(0, exclusive=False, timeout=None), EpochGuard)
    assert_type(win.unlock(0), None)
    assert_type(win.lock_all(), EpochGuard)
    assert_type(win.unlock_all(), None)
    assert_type(win.flush(0), None)
    assert_type(win.flush_all(), None)
    assert_type(win.flush_local(0), None)
    assert_type(win.flush_local_all(), None)
    assert_type(win.sync(), None)
    with win.lock(0) as guard:
        assert_type(guard, EpochGuard)
    win.lock(0, False)  # type: ignore[call-arg]
    win.lock(0, timeout="1 s")  # type: ignore[arg-type]
    win.flush()  # type: ignore[call-arg]
