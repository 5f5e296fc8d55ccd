# SPDX-License-Identifier: Apache-2.0
"""The bootstrap without MPI: one process, or the processes or threads of one host.

Rank 0 is the root: it listens at an abstract Unix socket whose name comes from the user and the
job's name (nothing is left in a file system when it dies); the others are leaves and connect to
it, in any order. In an exchange each leaf sends its piece to the root and gets the pieces of all.
Both sides check that the other process belongs to the same user. A leaf's death is end-of-file at
the root, which tells the other leaves; the root's is end-of-file at all.

Who gives up (deadline, signal) says so to the others, which raise instead of waiting for it.
"""

from __future__ import annotations

import hashlib
import numbers
import os
import socket
import struct
import threading
import time
import weakref
from typing import NoReturn

from hixl_rma.bootstrap.base import MAX_BYTES, Deadline
from hixl_rma.bootstrap.frames import Frame, Kind, Link, peer_uid, pump
from hixl_rma.errors import (
    ArgumentError,
    ArgumentTypeError,
    AuthenticationError,
    BootstrapError,
    ClosedError,
    ForkedError,
    PeerLostError,
    ProtocolError,
    RmaError,
    RmaTimeoutError,
)

__all__ = ["MAX_RANKS", "LocalBootstrap"]

MAX_RANKS = 4096
_HELLO = struct.Struct("<16sII")  # job, size, rank
_RANK = struct.Struct("<I")
_MAX_TEXT = 4096  # bytes of a reason
_FIRST_RETRY, _LAST_RETRY = 1e-3, 20e-3  # [s] between attempts to connect

_open: weakref.WeakSet[LocalBootstrap] = weakref.WeakSet()


class LocalBootstrap:
    """Exchanges bytes among the processes or threads of one host.

    Parameters
    ----------
    job : str, default ""
        What the ranks have agreed to call themselves; may be empty for a single rank.
    rank : int, default 0
        The caller's place.
    size : int, default 1
        The number of ranks, at most 4096.

    Raises
    ------
    ArgumentTypeError, ArgumentError
        When a parameter is of the wrong type or not possible.

    Notes
    -----
    The constructor is local; the first exchange brings the ranks together, under its deadline.
    """

    def __init__(self, job: str = "", rank: int = 0, size: int = 1) -> None:
        _check_name(job)
        self._rank, self._size = _check_int(rank, "rank"), _check_int(size, "size")
        if not 1 <= self._size <= MAX_RANKS:
            msg = f"size is from 1 to {MAX_RANKS}, not {self._size}"
            raise ArgumentError(msg)
        if not 0 <= self._rank < self._size:
            msg = f"rank is from 0 to {self._size - 1}, not {self._rank}"
            raise ArgumentError(msg)
        if self._size > 1 and not job:
            msg = "a job of more than one rank needs a name"
            raise ArgumentError(msg)
        self._name = f"local:{job}" if job else "local"
        self._job = hashlib.blake2b(job.encode(), digest_size=16).digest()
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._sequence = 0
        self._joined = self._size == 1
        self._closed = False
        self._broken: RmaError | None = None
        self._links: dict[int, Link] = {}  # by rank of the peer: the root's leaves, a leaf's root
        self._newcomers: list[Link] = []  # connected, and their hello has not arrived
        self._awaited = range(1, self._size)  # ranks whose pieces the root has not taken
        self._refused = ""
        self._listener: socket.socket | None = None
        _open.add(self)

    @property
    def rank(self) -> int:
        """The caller's place, from 0."""
        return self._rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._size

    @property
    def name(self) -> str:
        """What messages call it."""
        return self._name

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def __repr__(self) -> str:
        """Say which rank of which job it is."""
        state = " closed" if self._closed else " broken" if self._broken else ""
        return f"<LocalBootstrap {self._name} rank {self._rank} of {self._size}{state}>"

    def __enter__(self) -> LocalBootstrap:
        """Return itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close it."""
        self.close()

    def __del__(self) -> None:
        """Close the sockets, silently: a job has no other end than that of its processes."""
        if hasattr(self, "_listener"):  # false when the constructor raised
            self._drop_sockets()

    def close(self) -> None:
        """Close the sockets; for the other ranks this one is then lost. May be called again."""
        self._closed = True
        if os.getpid() == self._pid:
            self._drop_sockets()

    def allgather(self, data: bytes, deadline: Deadline | None = None) -> list[bytes]:
        """Give `data` to every rank and return what each gave, by rank.

        See `hixl_rma.bootstrap.Bootstrap.allgather`.
        """
        if os.getpid() != self._pid:
            msg = f"{self._name} belongs to process {self._pid}, the parent of this"
            raise ForkedError(msg)
        deadline = deadline or Deadline(None)
        left = deadline.remaining()
        if not self._lock.acquire(timeout=-1 if left is None else left):
            msg = f"{self._name}: another thread is in an exchange on it"
            raise RmaTimeoutError(msg)
        try:
            self._check_usable()
            return self._exchange(bytes(data), deadline)
        except BaseException as error:
            self._break_off(error)
            raise
        finally:
            self._lock.release()

    def _check_usable(self) -> None:
        if self._closed:
            msg = f"{self._name} is closed"
            raise ClosedError(msg)
        if self._broken is not None:
            raise self._broken_again()

    # -- the exchange ---------------------------------------------------------------------------

    def _exchange(self, data: bytes, deadline: Deadline) -> list[bytes]:
        if not self._joined:
            if self._rank == 0:
                self._gather_leaves(deadline)
            else:
                self._find_root(deadline)
            self._joined = True
        if len(data) > MAX_BYTES:  # only now, for who has joined can tell the others
            msg = f"an exchange takes {MAX_BYTES} bytes, not {len(data)}"
            raise ArgumentError(msg)
        if self._size == 1:
            return [data]
        self._sequence += 1
        if self._rank != 0:
            root = self._links[0]
            root.send(Kind.DATA, self._sequence, data)
            return self._unpack(self._await(root, Kind.RESULT, deadline).payload)
        pieces = [data]
        for rank in range(1, self._size):
            self._awaited = range(rank, self._size)
            pieces.append(self._await(self._links[rank], Kind.DATA, deadline).payload)
        table = struct.pack(f"<{self._size}Q", *(len(piece) for piece in pieces))
        for link in self._links.values():
            link.send(Kind.RESULT, self._sequence, table, *pieces)
        # A leaf that dies now has given its piece: this exchange is complete without it.
        while any(link.unsent for link in self._links.values()):
            if deadline.expired:
                self._raise_timeout(deadline)
            pump(self._links.values(), deadline)
        return pieces

    def _await(self, link: Link, kind: Kind, deadline: Deadline) -> Frame:
        """Return the next frame of `link`, which has to be of `kind` and of this exchange."""
        while True:
            self._look_for_bad_news()
            if link.frames:
                frame = link.frames.popleft()
                if (frame.kind, frame.sequence) != (kind, self._sequence):
                    msg = (
                        f"{frame.kind.name} {frame.sequence} arrived instead of {kind.name} "
                        f"{self._sequence}"
                    )
                    raise ProtocolError(msg, peer_rank=link.rank)
                return frame
            if deadline.expired:
                self._raise_timeout(deadline)
            pump(self._links.values(), deadline)

    def _look_for_bad_news(self) -> None:
        for link in self._links.values():
            frame = link.frames[0] if link.frames else None
            if frame is not None and frame.kind in (Kind.ABORT, Kind.REJECT):
                text = frame.payload[:_MAX_TEXT].decode(errors="replace")
                msg = f"{self._name}: {text}"
                raise BootstrapError(msg, peer_rank=link.rank)
            if frame is not None and frame.kind is Kind.LOST:
                if len(frame.payload) != _RANK.size:
                    msg = "a LOST frame of the wrong length"
                    raise ProtocolError(msg, peer_rank=link.rank)
                (rank,) = _RANK.unpack(frame.payload)
                msg = f"{self._name}: the process is gone"
                raise PeerLostError(msg, peer_rank=rank)
            if frame is None and link.error is not None:
                msg = f"{self._name}: {link.error.detail}"
                raise ProtocolError(msg, peer_rank=link.rank)
            if frame is None and link.lost:
                msg = f"{self._name}: the process is gone, or has closed its bootstrap"
                raise PeerLostError(msg, peer_rank=link.rank)

    def _unpack(self, payload: bytes) -> list[bytes]:
        table = struct.Struct(f"<{self._size}Q")
        lengths = table.unpack_from(payload) if len(payload) >= table.size else ()
        if table.size + sum(lengths) != len(payload) or not lengths:
            msg = "a RESULT frame whose lengths do not add up"
            raise ProtocolError(msg, peer_rank=0)
        pieces, start = [], table.size
        for length in lengths:
            pieces.append(payload[start : start + length])
            start += length
        return pieces

    def _raise_timeout(self, deadline: Deadline) -> NoReturn:
        awaited = "rank 0"
        if self._rank == 0:
            missing = [
                rank
                for rank in self._awaited
                if rank not in self._links or not self._has_given(self._links[rank])
            ]
            shown = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
            awaited = f"rank{'s' if len(missing) > 1 else ''} {shown}" if missing else "the others"
        refused = f" (refused: {self._refused})" if self._refused else ""
        msg = (
            f"{self._name}: rank {self._rank} of {self._size} waited {deadline.timeout} s for "
            f"{awaited}{refused}"
        )
        raise RmaTimeoutError(msg)

    def _has_given(self, link: Link) -> bool:
        return any(frame.kind is Kind.DATA for frame in link.frames)

    # -- joining --------------------------------------------------------------------------------

    def _address(self) -> str:
        digest = hashlib.blake2b(self._job + str(os.geteuid()).encode(), digest_size=16)
        return f"\0hixl_rma.{digest.hexdigest()}"

    def _gather_leaves(self, deadline: Deadline) -> None:
        listener = self._listen()
        while len(self._links) < self._size - 1:
            self._look_for_bad_news()
            if deadline.expired:
                self._raise_timeout(deadline)
            if pump([*self._links.values(), *self._newcomers], deadline, listener):
                self._accept(listener)
            self._newcomers = [link for link in self._newcomers if not self._admit(link)]
        self._drop_listener()

    def _listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener = listener
        listener.setblocking(False)
        try:
            listener.bind(self._address())
            listener.listen(min(self._size, socket.SOMAXCONN))
        except OSError as error:
            msg = f"{self._name}: another process is rank 0 of a job with this name"
            raise BootstrapError(msg, errno=error.errno) from error
        return listener

    def _accept(self, listener: socket.socket) -> None:
        try:
            sock, _ = listener.accept()
        except OSError:  # it went away again
            return
        if peer_uid(sock) != os.geteuid():
            self._refused = "a process of another user"
            sock.close()
            return
        self._newcomers.append(Link(sock, limit=_MAX_TEXT))

    def _admit(self, link: Link) -> bool:
        """Take or refuse a newcomer; return whether that is decided."""
        if not link.frames and not link.lost:
            return False
        frame = link.frames.popleft() if link.frames else None
        why = link.error.detail if link.error else "a process that did not say hello"
        if frame is not None and frame.kind is Kind.HELLO and len(frame.payload) == _HELLO.size:
            job, size, rank = _HELLO.unpack(frame.payload)
            why = self._why_not(job, size, rank)
            if not why:
                link.rank, link.limit = rank, MAX_BYTES
                self._links[rank] = link
                link.send(Kind.WELCOME, 0)
                return True
        self._refused = why
        link.send(Kind.REJECT, 0, why.encode())
        link.close()
        return True

    def _why_not(self, job: bytes, size: int, rank: int) -> str:
        if job != self._job:
            return "another job"
        if size != self._size:
            return f"rank {rank} counts {size} ranks in this job, rank 0 counts {self._size}"
        if not 0 < rank < size:
            return f"rank {rank} of {size}"
        if rank in self._links:
            return f"rank {rank} has joined already"
        return ""

    def _find_root(self, deadline: Deadline) -> None:
        retry = _FIRST_RETRY
        while True:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.setblocking(False)
            try:
                sock.connect(self._address())
                break
            except (ConnectionRefusedError, BlockingIOError):
                sock.close()  # rank 0 does not listen yet, or its queue is full
            except BaseException:
                sock.close()
                raise
            left = deadline.remaining()
            if left == 0:
                self._raise_timeout(deadline)
            time.sleep(retry if left is None else min(retry, left))
            retry = min(2 * retry, _LAST_RETRY)
        link = Link(sock, limit=(MAX_BYTES + 8) * self._size)
        link.rank = 0
        self._links[0] = link
        if peer_uid(sock) != os.geteuid():
            msg = f"{self._name}: rank 0 belongs to another user"
            raise AuthenticationError(msg, peer_rank=0)
        link.send(Kind.HELLO, 0, _HELLO.pack(self._job, self._size, self._rank))
        self._await(link, Kind.WELCOME, deadline)

    # -- the end --------------------------------------------------------------------------------

    def _broken_again(self) -> RmaError:
        broken = self._broken
        if isinstance(broken, PeerLostError):
            return PeerLostError(broken.detail, peer_rank=broken.peer_rank)
        return BootstrapError(f"{self._name} cannot be used any more: {broken}")

    def _break_off(self, error: BaseException) -> None:
        """Make `error` final and tell the others, which wait for this rank or will."""
        if (
            self._size == 1
            or self._broken is not None
            or isinstance(error, (ClosedError, ForkedError))
        ):
            return
        if isinstance(error, RmaError):
            self._broken = error
        else:
            self._broken = BootstrapError(f"{type(error).__name__} ended an exchange")
        lost = error.peer_rank if isinstance(error, PeerLostError) else None
        self._drop_listener()
        for link in self._links.values():
            if link.rank == lost:
                continue
            if lost is not None and self._rank == 0:
                link.send(Kind.LOST, 0, _RANK.pack(lost))
            else:
                text = f"rank {self._rank} gave up: {self._broken}"
                link.send(Kind.ABORT, 0, text.encode()[:_MAX_TEXT])
            if link.unsent:  # the end of the stream has to speak instead
                link.shut_down()

    def _drop_listener(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
        for link in self._newcomers:
            link.close()
        self._newcomers = []

    def _drop_sockets(self) -> None:
        self._drop_listener()
        for link in self._links.values():
            link.close()

    def _after_fork(self) -> None:
        # Closing the copies keeps end-of-file at the peers a sign of the parent's death.
        self._drop_sockets()


def _check_name(value: object) -> None:
    if not isinstance(value, str):
        msg = f"job takes a name, not {type(value).__name__}"
        raise ArgumentTypeError(msg)


def _check_int(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        msg = f"{name} takes an integer, not {type(value).__name__}"
        raise ArgumentTypeError(msg)
    return int(value)


def _close_in_child() -> None:
    for bootstrap in list(_open):
        bootstrap._after_fork()


os.register_at_fork(after_in_child=_close_in_child)
