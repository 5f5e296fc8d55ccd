# SPDX-License-Identifier: Apache-2.0
"""What every bootstrap offers, and the deadline that bounds its calls."""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["MAX_BYTES", "Bootstrap", "Deadline"]

MAX_BYTES = 64 << 20
"""Most bytes that one rank may give to one exchange: a guard against nonsense, far above need."""


class Deadline:
    """A point in time that several waits share.

    Parameters
    ----------
    timeout : float or None
        Seconds from now, >= 0; None never expires.
    """

    __slots__ = ("_at", "timeout")

    def __init__(self, timeout: float | None) -> None:
        self.timeout = timeout
        self._at = None if timeout is None else time.monotonic() + timeout

    def remaining(self) -> float | None:
        """Return the seconds left, never below 0; None when it never expires."""
        return None if self._at is None else max(0.0, self._at - time.monotonic())

    @property
    def expired(self) -> bool:
        """Whether the time is up."""
        return self._at is not None and time.monotonic() >= self._at

    def __repr__(self) -> str:
        """Say how much is left of what."""
        left = self.remaining()
        return "Deadline(None)" if left is None else f"Deadline({self.timeout}, {left:.3f} s left)"


class Bootstrap(Protocol):
    """Exchanges bytes among ranks.

    Attributes
    ----------
    rank : int
        The caller's place, from 0.
    size : int
        The number of ranks.
    name : str
        What messages call it.
    """

    @property
    def rank(self) -> int:
        """The caller's place, from 0."""

    @property
    def size(self) -> int:
        """The number of ranks."""

    @property
    def name(self) -> str:
        """What messages call it."""

    def allgather(self, data: bytes, deadline: Deadline | None = None) -> list[bytes]:
        """Give `data` to every rank and return what each gave, by rank.

        Parameters
        ----------
        data : bytes
            At most `MAX_BYTES`; its length may differ between ranks.
        deadline : Deadline or None, default None
            When to give up; None waits until success or the loss of a peer.

        Returns
        -------
        list of bytes
            One piece for each rank.

        Raises
        ------
        RmaTimeoutError
            When the deadline passed; the bootstrap cannot be used from then on.
        BootstrapError
            When an earlier call failed here, or another rank gave up.
        PeerLostError
            When the process of a rank is known to be gone.
        ArgumentError
            When a rank gives more than `MAX_BYTES`.

        Notes
        -----
        Collective over all ranks, in the same order on each. A signal's handler runs within
        100 ms; what it raises comes out of the call, and the bootstrap cannot be used from then on.
        """
