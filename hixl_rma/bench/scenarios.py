# SPDX-License-Identifier: Apache-2.0
"""Which function measures which row."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hixl_rma.bench import notifications, operations, overlap, synchronisation, transfers
from hixl_rma.bench.catalogue import PASSIVE, Row
from hixl_rma.bench.session import Session
from hixl_rma.bench.timing import Effort, Samples

__all__ = ["SCENARIOS", "Scenario"]

Scenario = Callable[[Session, Row, Effort], Samples | None]
"""Measures a row; both ranks call it, and the origin returns samples."""

SCENARIOS: Mapping[str, Scenario] = {
    "put": transfers.put,
    "get": transfers.get,
    "blocks": transfers.blocks,
    "slowdown": transfers.slowdown,
    "fetch_and_op": operations.atomic,
    "compare_and_swap": operations.atomic,
    "accumulate": operations.accumulate,
    "fence": synchronisation.fence,
    "lock exclusive": synchronisation.lock,
    "lock shared": synchronisation.lock,
    "put_notify": notifications.put_notify,
    "wait_one": notifications.wait,
    "wait_all_1": notifications.wait,
    "wait_all_4": notifications.wait,
    "wait_all_64": notifications.wait,
    "sleeping": notifications.sleeping,
    "rput": overlap.until_it_returns,
    "hidden": overlap.hidden,
    **{f"passive {name}": operations.passive for name in PASSIVE},
}
"""By the scenario of a row."""
