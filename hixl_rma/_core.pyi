# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, SupportsIndex, final

from _typeshed import structseq
from typing_extensions import Self, disjoint_base

from hixl_rma.typing import (
    BufferLike,
    NotificationSelector,
    TargetDisplacement,
    Timeout,
    VectorOps,
)

wire_version: int

def register_error_classes(classes: dict[str, Any]) -> bool: ...
def set_buffer_converter(function: Callable[[object, bool], object]) -> None: ...
def drain_log() -> list[tuple[str, str]]: ...

class Engine:
    def __init__(self, data_transports: Sequence[str]) -> None: ...
    def reports(self) -> list[tuple[str, bool, str]]: ...

class Request:
    def __init__(self, *args: object, **kwargs: object) -> None: ...
    def test(self) -> bool: ...
    @property
    def done(self) -> bool: ...
    def wait(self, timeout: Timeout) -> bool: ...

@final
class Notification(structseq[int], tuple[int, int, int, int]):
    __match_args__ = ("id", "source", "count", "value")
    @property
    def id(self) -> int: ...
    @property
    def source(self) -> int: ...
    @property
    def count(self) -> int: ...  # type: ignore[override]
    @property
    def value(self) -> int: ...

@final
class EpochGuard:
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...

@disjoint_base
class Window:
    def put(
        self, origin: BufferLike, target_rank: SupportsIndex, target_disp: TargetDisplacement = 0
    ) -> None: ...
    def get(
        self, origin: BufferLike, target_rank: SupportsIndex, target_disp: TargetDisplacement = 0
    ) -> None: ...
    def _rput(
        self, origin: BufferLike, target_rank: SupportsIndex, target_disp: TargetDisplacement = 0
    ) -> Request: ...
    def _rget(
        self, origin: BufferLike, target_rank: SupportsIndex, target_disp: TargetDisplacement = 0
    ) -> Request: ...
    def put_notify(
        self,
        origin: BufferLike,
        target_rank: SupportsIndex,
        target_disp: TargetDisplacement = 0,
        *,
        notification: SupportsIndex,
        value: SupportsIndex = 1,
        order: str = "all",
    ) -> None: ...
    def _rput_notify(
        self,
        origin: BufferLike,
        target_rank: SupportsIndex,
        target_disp: TargetDisplacement = 0,
        *,
        notification: SupportsIndex,
        value: SupportsIndex = 1,
        order: str = "all",
    ) -> Request: ...
    def get_notify(
        self,
        origin: BufferLike,
        target_rank: SupportsIndex,
        target_disp: TargetDisplacement = 0,
        *,
        notification: SupportsIndex,
        value: SupportsIndex = 1,
        order: str = "all",
    ) -> None: ...
    def put_v(self, ops: VectorOps, target_rank: SupportsIndex) -> None: ...
    def get_v(self, ops: VectorOps, target_rank: SupportsIndex) -> None: ...
    def put_notify_v(
        self,
        ops: VectorOps,
        target_rank: SupportsIndex,
        *,
        notification: SupportsIndex,
        value: SupportsIndex = 1,
        order: str = "all",
    ) -> None: ...
    def accumulate(
        self,
        origin: BufferLike,
        target_rank: SupportsIndex,
        target_disp: TargetDisplacement = 0,
        *,
        op: str = "sum",
    ) -> None: ...
    def _raccumulate(
        self,
        origin: BufferLike,
        target_rank: SupportsIndex,
        target_disp: TargetDisplacement = 0,
        *,
        op: str = "sum",
    ) -> Request: ...
    def get_accumulate(
        self,
        origin: BufferLike | None,
        result: BufferLike,
        target_rank: SupportsIndex,
        target_disp: TargetDisplacement = 0,
        *,
        op: str = "sum",
    ) -> None: ...
    def _rget_accumulate(
        self,
        origin: BufferLike | None,
        result: BufferLike,
        target_rank: SupportsIndex,
        target_disp: TargetDisplacement = 0,
        *,
        op: str = "sum",
    ) -> Request: ...
    def fetch_and_op(
        self,
        origin: BufferLike | None,
        result: BufferLike,
        target_rank: SupportsIndex,
        target_disp: TargetDisplacement = 0,
        *,
        op: str = "sum",
    ) -> None: ...
    def compare_and_swap(
        self,
        origin: BufferLike,
        compare: BufferLike,
        result: BufferLike,
        target_rank: SupportsIndex,
        target_disp: SupportsIndex = 0,
    ) -> None: ...
    def notify(
        self,
        target_rank: SupportsIndex,
        *,
        notification: SupportsIndex,
        value: SupportsIndex = 1,
        order: str = "all",
    ) -> None: ...
    def wait_notify(
        self,
        notification: NotificationSelector = -1,
        *,
        count: SupportsIndex = 1,
        source: SupportsIndex = -1,
        consume: bool = True,
        timeout: Timeout = None,
    ) -> Notification: ...
    def wait_notify_some(
        self,
        notification: NotificationSelector = -1,
        *,
        count: SupportsIndex = 1,
        source: SupportsIndex = -1,
        consume: bool = True,
        timeout: Timeout = None,
    ) -> list[Notification]: ...
    def wait_notify_all(
        self,
        notifications: NotificationSelector,
        *,
        count: SupportsIndex = 1,
        source: SupportsIndex = -1,
        consume: bool = True,
        timeout: Timeout = None,
    ) -> list[Notification]: ...
    def test_notify(
        self,
        notification: NotificationSelector = -1,
        *,
        count: SupportsIndex = 1,
        source: SupportsIndex = -1,
        consume: bool = True,
    ) -> Notification | None: ...
    def notify_count(self, notification: SupportsIndex, source: SupportsIndex = -1) -> int: ...
    def reset_notify(self, notification: SupportsIndex) -> tuple[int, int]: ...
    def notify_fileno(self) -> int: ...
    def flush(self, rank: SupportsIndex, *, timeout: Timeout = None) -> None: ...
    def flush_local(self, rank: SupportsIndex, *, timeout: Timeout = None) -> None: ...
    def flush_all(self, *, timeout: Timeout = None) -> None: ...
    def flush_local_all(self, *, timeout: Timeout = None) -> None: ...
    def complete(self, *, timeout: Timeout = None) -> None: ...
    def wait(self, *, timeout: Timeout = None) -> None: ...
    def test(self) -> bool: ...
    def unlock(self, rank: SupportsIndex, *, timeout: Timeout = None) -> None: ...
    def unlock_all(self, *, timeout: Timeout = None) -> None: ...
    def sync(self) -> None: ...
    def free(self, timeout: Timeout = None) -> None: ...
    def fence(self, assertion: SupportsIndex = 0, *, timeout: Timeout = None) -> EpochGuard: ...
    def start(
        self,
        ranks: Sequence[SupportsIndex],
        assertion: SupportsIndex = 0,
        *,
        timeout: Timeout = None,
    ) -> EpochGuard: ...
    def post(self, ranks: Sequence[SupportsIndex], assertion: SupportsIndex = 0) -> EpochGuard: ...
    def lock(
        self,
        rank: SupportsIndex,
        *,
        exclusive: bool = True,
        assertion: SupportsIndex = 0,
        timeout: Timeout = None,
    ) -> EpochGuard: ...
    def lock_all(self, assertion: SupportsIndex = 0, *, timeout: Timeout = None) -> EpochGuard: ...
    def _prepare(
        self,
        engine: Engine,
        rank: int,
        size: int,
        notifications: int,
        disp_unit: int,
        memory: int | BufferLike,
        notification_cap: int,
        timeout: float,
    ) -> bytes: ...
    def _connect(self, descriptions: Sequence[bytes], timeout: float) -> None: ...
    def _settle(self, spin: float, timeout: float) -> None: ...
    def _finish(self) -> None: ...
    def _abort(self) -> None: ...
    def _mapped(self, rank: int) -> tuple[int, int, object] | None: ...
    def _facts(self, what: str) -> Any: ...  # noqa: ANN401
