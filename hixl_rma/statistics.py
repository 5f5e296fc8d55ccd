# SPDX-License-Identifier: Apache-2.0
"""What `Window.stats` returns: operations, bytes, time and waits, counted natively."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["PeerStats", "TransportStats", "WaitStats", "WindowStats"]


class PeerStats(NamedTuple):
    """What this rank issued to one target, and how long it waited for that one."""

    rank: int
    transport: str
    puts: int
    gets: int
    accumulates: int
    """Of the whole family: accumulates, fetches, compare-and-swaps."""
    notifications: int
    bytes_put: int
    bytes_get: int
    bytes_accumulated: int
    seconds_put: float
    """In the calls and in the copy thread. Below 4 KiB one call of 64 is timed for all of them."""
    seconds_get: float
    seconds_accumulated: float
    waits: int
    """Waits for this rank alone that took longer than 5 us: for its lock, its notifications..."""
    seconds_waiting: float


class WaitStats(NamedTuple):
    """Waits of one kind that took longer than 5 us."""

    waits: int
    seconds: float


class TransportStats(NamedTuple):
    """What went through one transport."""

    operations: int
    bytes: int
    seconds: float
    waits: int
    seconds_waiting: float


class WindowStats(NamedTuple):
    """What this rank did on a window since it was made."""

    peers: tuple[PeerStats, ...]
    """By rank."""
    waits: dict[str, WaitStats]
    """Whomever it waited for, by the method: fence, start, wait, lock, flush, request, free, and
    notification."""

    def by_transport(self) -> dict[str, TransportStats]:
        """Return the sums over the ranks that each transport reaches."""
        sums: dict[str, TransportStats] = {}
        for peer in self.peers:
            known = sums.get(peer.transport, TransportStats(0, 0, 0.0, 0, 0.0))
            sums[peer.transport] = TransportStats(
                known.operations + peer.puts + peer.gets + peer.accumulates,
                known.bytes + peer.bytes_put + peer.bytes_get + peer.bytes_accumulated,
                known.seconds + peer.seconds_put + peer.seconds_get + peer.seconds_accumulated,
                known.waits + peer.waits,
                known.seconds_waiting + peer.seconds_waiting,
            )
        return sums
