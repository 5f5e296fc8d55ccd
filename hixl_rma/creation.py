# SPDX-License-Identifier: Apache-2.0
"""The collective part of making a window: three exchanges, in which errors travel as data.

An error of one rank is raised on all: on the rank itself as it is, on the others as the same class
with the culprit's rank in front. So nobody is left waiting for a rank that has given up.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from dataclasses import dataclass

from hixl_rma import _native, errors
from hixl_rma.bootstrap import Bootstrap, Deadline
from hixl_rma.config import Config
from hixl_rma.layout import Exposure

__all__ = ["Plan", "make_collectively"]

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
    rounds = _Rounds(bootstrap, deadline)

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

    described = rounds.run(prepare)
    connected = rounds.run(connect)
    rounds.run(settle)
    core._finish()  # everybody has imported what it needs
    return [Exposure.from_bytes(exposure) for exposure, _ in described]
