# SPDX-License-Identifier: Apache-2.0
"""The collective part of making a window: three exchanges, in which errors travel as data.

An error of one rank is raised on all: on the rank itself as it is, on the others as the same class
with the culprit's rank in front. So nobody is left waiting for a rank that has given up.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass

from hixl_rma import _native, errors
from hixl_rma.bootstrap import Bootstrap, Deadline
from hixl_rma.config import Config
from hixl_rma.layout import Exposure

__all__ = ["Plan", "make_collectively"]

_GRACE = 0.5  # [s] for an exchange to end that a lost rank took part in
_HEADER = struct.Struct("<III")  # lengths of: error code, error text or exposure, description


@dataclass(frozen=True)
class Plan:
    """What this rank brings to a window.

    Attributes
    ----------
    exposure : Exposure
        Shape and type of its memory.
    memory : int or object
        Bytes to allocate, or the caller's memory (an object with a buffer).
    disp_unit : int
        Bytes of one displacement.
    notifications : int
        Number of ids, equal on all ranks.
    """

    exposure: Exposure
    memory: object
    disp_unit: int
    notifications: int


def _processors() -> bytes:
    """Return a mask of the processors that this process may use."""
    mask = sum(1 << number for number in os.sched_getaffinity(0))
    return mask.to_bytes(mask.bit_length() // 8 + 1, "little")


def _spin_seconds(config: Config, masks: list[bytes]) -> float:
    if config.spin_us is not None:
        return config.spin_us * 1e-6
    # Who spins while its peer has no processor only keeps it waiting. A launcher may have bound
    # each rank to a processor of its own: what counts is what they have together.
    together = 0
    for mask in masks:
        together |= int.from_bytes(mask, "little")
    on_host = os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE") or os.environ.get("MPI_LOCALNRANKS")
    ranks = max(len(masks), int(on_host)) if on_host and on_host.isdigit() else len(masks)
    return 50e-6 if ranks <= together.bit_count() else 0.0


def _pack(error: BaseException | None, exposure: bytes = b"", description: bytes = b"") -> bytes:
    code, text = b"", exposure
    if isinstance(error, errors.RmaError):
        code, text = error.code.encode(), str(error).encode()
    elif error is not None:
        code, text = b"Internal", f"{type(error).__name__}: {error}".encode()
    return _HEADER.pack(len(code), len(text), len(description)) + code + text + description


def _unpack(data: bytes) -> tuple[str, bytes, bytes]:
    code, text, description = _HEADER.unpack_from(data)
    at = _HEADER.size
    if len(data) != at + code + text + description:
        msg = "a rank sent a message of a wrong length while a window was made"
        raise errors.ProtocolError(msg, operation="create")
    parts = (data[at : at + code], data[at + code : at + code + text], data[at + code + text :])
    return parts[0].decode(), parts[1], parts[2]


class _Rounds:
    """Exchanges results; raises the error of the lowest rank that has one on every rank."""

    def __init__(self, bootstrap: Bootstrap, deadline: Deadline) -> None:
        self._bootstrap = bootstrap
        self._deadline = deadline

    def run(self, step: Callable[[], tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        own: Exception | None = None
        exposure = description = b""
        try:
            exposure, description = step()
        except Exception as error:  # whatever it is, the others have to learn of it
            own = error
        gathered = self._bootstrap.allgather(_pack(own, exposure, description), self._deadline)
        if own is not None:
            raise own
        answers = []
        for rank, data in enumerate(gathered):
            code, text, described = _unpack(data)
            if code:
                kind = errors.by_code.get(code, errors.InternalError)
                msg = f"rank {rank}: {text.decode()}"
                raise kind(msg, peer_rank=rank)
            answers.append((text, described))
        return answers


class _WatchfulDeadline(Deadline):
    """A deadline that also ends an exchange when a rank is known to have been lost.

    Bootstraps ask it all the time while they wait, and need not notice deaths themselves: MPI does
    not tell of them. An exchange to which the lost rank has given its piece may still be completed.
    """

    __slots__ = ("_core", "_noticed")

    def __init__(self, timeout: float | None, core: _native.CoreWindow) -> None:
        super().__init__(timeout)
        self._core = core
        self._noticed: tuple[int, float] | None = None  # the first lost rank, and when

    def remaining(self) -> float | None:
        """Return the seconds left; raise PeerLostError when a rank was lost."""
        self._look()
        return super().remaining()

    @property
    def expired(self) -> bool:
        """Whether the time is up; raise PeerLostError when a rank was lost."""
        self._look()
        return super().expired

    def _look(self) -> None:
        if self._noticed is None:
            lost = self._core._facts("failed_ranks")
            self._noticed = (lost[0], time.monotonic()) if lost else None
        elif time.monotonic() - self._noticed[1] > _GRACE:
            msg = "the rank was lost while a window was made"
            raise errors.PeerLostError(msg, operation="create", peer_rank=self._noticed[0])


def make_collectively(
    core: _native.CoreWindow,
    plan: Callable[[], Plan],
    bootstrap: Bootstrap,
    config: Config,
) -> list[Exposure]:
    """Bring a native window to life together with all ranks of the bootstrap.

    Parameters
    ----------
    core : CoreWindow
        The window, not prepared yet.
    plan : callable
        Checks this rank's arguments and returns its plan; its errors are raised on all ranks.
    bootstrap : Bootstrap
        Connects the ranks.
    config : Config
        Settings of this rank.

    Returns
    -------
    list of Exposure
        What each rank exposes.

    Notes
    -----
    Collective. Bounded by ``config.timeout``.
    """
    deadline = Deadline(config.timeout)

    def seconds_left() -> float:
        left = deadline.remaining()
        return -1.0 if left is None else left

    def prepare() -> tuple[bytes, bytes]:
        mine = plan()
        timeout = -1.0 if config.timeout is None else config.timeout
        description = core._prepare(
            _native.engine_for(config.transports),
            bootstrap.rank,
            bootstrap.size,
            mine.notifications,
            mine.disp_unit,
            mine.memory,  # type: ignore[arg-type]
            config.notification_cap,
            timeout,
        )
        return mine.exposure.to_bytes(), description

    def connect() -> tuple[bytes, bytes]:
        core._connect([description for _, description in described], seconds_left())
        return _processors(), b""

    def settle() -> tuple[bytes, bytes]:
        core._settle(_spin_seconds(config, [mask for mask, _ in connected]), seconds_left())
        return b"", b""

    described = _Rounds(bootstrap, deadline).run(prepare)
    # From now on the ranks know each other's processes.
    rounds = _Rounds(bootstrap, _WatchfulDeadline(deadline.remaining(), core))
    connected = rounds.run(connect)
    rounds.run(settle)
    core._finish()  # everybody has imported what it needs
    return [Exposure.from_bytes(exposure) for exposure, _ in described]
