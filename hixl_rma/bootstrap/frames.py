# SPDX-License-Identifier: Apache-2.0
"""Frames over a Unix socket, for the local bootstrap.

A frame is a header of fixed size (magic, version, kind, sequence, length; little-endian) and that
many bytes. Every field is checked before it is used: a length from the wire reserves no memory,
which grows only as bytes arrive.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import os
import select
import socket
import struct
from collections import deque
from collections.abc import Iterable

from hixl_rma.bootstrap.base import Deadline
from hixl_rma.errors import ProtocolError

__all__ = ["POLL_SECONDS", "Frame", "Kind", "Link", "peer_uid", "pump"]

POLL_SECONDS = 0.1
"""Longest single wait: a signal may go to another thread and then does not end it."""

_MAGIC = b"HXRB"
_VERSION = 1
_HEADER = struct.Struct("<4sHHIQ")
_CHUNK = 1 << 18  # bytes asked of the socket at once
_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid (unix(7))


class Kind(enum.IntEnum):
    """What a frame says."""

    HELLO = 1  # leaf to root: job, size and rank
    WELCOME = 2  # root to leaf: it has joined, and longer frames may come
    REJECT = 3  # root to leaf: why it may not join
    DATA = 4  # leaf to root: its piece
    RESULT = 5  # root to leaf: the pieces of all
    ABORT = 6  # either way: the sender gave up, and why
    LOST = 7  # root to leaf: the process of that rank is gone


@dataclasses.dataclass(frozen=True)
class Frame:
    """One frame."""

    kind: Kind
    sequence: int
    payload: bytes


class Link:
    """One connected socket with its half-read and half-written frames; never blocks.

    Parameters
    ----------
    sock : socket.socket
        A connected stream socket; the link owns it.
    limit : int
        Most bytes of a frame's payload that may arrive.
    """

    def __init__(self, sock: socket.socket, limit: int) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._in = bytearray()
        self._out = bytearray()
        self.limit = limit
        self.frames: deque[Frame] = deque()
        self.rank = -1  # of the peer, once it has said so
        self.lost = False  # no more frames will arrive than those in `frames`
        self.error: ProtocolError | None = None  # why, if what arrived was no frame

    @property
    def sock(self) -> socket.socket:
        """The socket."""
        return self._sock

    @property
    def unsent(self) -> bool:
        """Whether bytes wait to be written."""
        return bool(self._out)

    def send(self, kind: Kind, sequence: int, *payload: bytes | bytearray | memoryview) -> None:
        """Queue a frame and write what the socket takes."""
        length = sum(len(piece) for piece in payload)
        self._out += _HEADER.pack(_MAGIC, _VERSION, kind, sequence & 0xFFFFFFFF, length)
        for piece in payload:
            self._out += piece
        self.write()

    def write(self) -> None:
        """Write what the socket takes."""
        try:
            while self._out:
                sent = self._sock.send(memoryview(self._out)[: 4 * _CHUNK])
                del self._out[:sent]
        except BlockingIOError:
            pass
        except OSError:  # the peer is gone; reading tells, after what it sent before
            self._out.clear()

    def read(self) -> None:
        """Read what has arrived; what is no frame of this version sets `error` and `lost`."""
        while not self.lost:
            try:
                piece = self._sock.recv(_CHUNK)
            except BlockingIOError:
                break
            except OSError:
                piece = b""
            if not piece:
                self.lost = True
            self._in += piece
            try:
                self._split()
            except ProtocolError as error:
                self.error, self.lost = error, True
            if len(piece) < _CHUNK:
                break

    def _split(self) -> None:
        start = 0
        while len(self._in) - start >= _HEADER.size:
            magic, version, kind, sequence, length = _HEADER.unpack_from(self._in, start)
            if magic != _MAGIC:
                msg = "the other side does not speak the local bootstrap's protocol"
                raise ProtocolError(msg)
            if version != _VERSION:
                msg = (
                    f"the other side speaks version {version} of the local bootstrap's protocol, "
                    f"this side version {_VERSION}"
                )
                raise ProtocolError(msg)
            if kind not in Kind.__members__.values() or length > self.limit:
                msg = f"a frame of kind {kind} with {length} bytes, where {self.limit} are allowed"
                raise ProtocolError(msg)
            end = start + _HEADER.size + length
            if len(self._in) < end:
                break
            payload = bytes(memoryview(self._in)[start + _HEADER.size : end])
            self.frames.append(Frame(Kind(kind), sequence, payload))
            start = end
        del self._in[:start]

    def shut_down(self) -> None:
        """Say that no more frames come."""
        with contextlib.suppress(OSError):  # it may be gone already
            self._sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()


def peer_uid(sock: socket.socket) -> int:
    """Return the user of the process at the other side (SO_PEERCRED)."""
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _pid, uid, _gid = _CREDENTIALS.unpack(raw)
    return int(uid)


def pump(links: Iterable[Link], deadline: Deadline, listener: socket.socket | None = None) -> bool:
    """Wait for one of the sockets, then read and write what is possible.

    Parameters
    ----------
    links : iterable of Link
        The connections; lost ones without unsent bytes are left alone.
    deadline : Deadline
        Bounds the wait, which is never longer than `POLL_SECONDS` in one call.
    listener : socket.socket or None, default None
        Also wait for a connection to it.

    Returns
    -------
    bool
        Whether a connection waits to be accepted.
    """
    poll = select.poll()
    by_number: dict[int, Link] = {}
    for link in links:
        events = (0 if link.lost else select.POLLIN) | (select.POLLOUT if link.unsent else 0)
        if events:
            by_number[link.sock.fileno()] = link
            poll.register(link.sock, events)
    if listener is not None:
        poll.register(listener, select.POLLIN)
    left = deadline.remaining()
    seconds = POLL_SECONDS if left is None else min(POLL_SECONDS, left)
    if seconds == 0:
        os.sched_yield()
    accept = False
    for number, events in poll.poll(seconds * 1000):
        found = by_number.get(number)
        if found is None:
            accept = True
            continue
        if events & select.POLLOUT:
            found.write()
        if events & ~select.POLLOUT:
            found.read()
    return accept
