# SPDX-License-Identifier: Apache-2.0
"""The errors of the package.

Each class has two bases: `RmaError`, and the builtin that a user would catch anyway. Each carries
the name of the native status code it stands for (`code`) and says what was being done
(`operation`), by which transport, to which rank, and with which system error. The classes are
grouped by the largest thing that has to be thrown away: the call, the operation, the peer, the
object, the process.
"""

from __future__ import annotations

import errno as _errno
import os
from collections.abc import Mapping
from typing import Any, ClassVar

__all__ = [
    "AccessError",
    "ArgumentError",
    "ArgumentTypeError",
    "AuthenticationError",
    "BootstrapError",
    "BusyError",
    "CanceledError",
    "ClosedError",
    "EpochError",
    "ForkedError",
    "InternalError",
    "NotConnectedError",
    "NotRegisteredError",
    "NotifyTimeoutError",
    "PeerLostError",
    "ProtocolError",
    "RangeError",
    "ReadOnlyBufferError",
    "ResourceError",
    "RmaError",
    "RmaTimeoutError",
    "StaleError",
    "TransferError",
    "TransportError",
    "UnsupportedError",
    "by_code",
]


class RmaError(Exception):
    """Base of every error that this package raises.

    Parameters
    ----------
    message : str
        What happened, without the facts that follow; kept as `detail`.
    operation : str, default ""
        The call that failed, such as ``"put"``.
    transport : str, default ""
        The transport that carried it, such as ``"cma"``.
    peer_rank : int or None, default None
        The rank at the other side.
    errno : int or None, default None
        The system error behind it.

    Attributes
    ----------
    code : str
        Name of the native status code.
    """

    code: ClassVar[str] = ""
    errno: int | None  # declared because OSError, the other base of some classes, has it too

    def __init__(
        self,
        message: str = "",
        *,
        operation: str = "",
        transport: str = "",
        peer_rank: int | None = None,
        errno: int | None = None,
    ) -> None:
        super().__init__(message)
        self.detail = str(message)
        self.operation = operation
        self.transport = transport
        self.peer_rank = peer_rank
        self.errno = errno

    def __str__(self) -> str:
        """Return ``operation: detail (rank 1, transport cma, EPERM: ...)`` as far as known."""
        facts = []
        if self.peer_rank is not None:
            facts.append(f"rank {self.peer_rank}")
        if self.transport:
            facts.append(f"transport {self.transport}")
        if self.errno:
            name = _errno.errorcode.get(self.errno, f"errno {self.errno}")
            facts.append(f"{name}: {os.strerror(self.errno)}")
        text = f"{self.operation}: {self.detail}" if self.operation else self.detail
        return f"{text} ({', '.join(facts)})" if facts else text

    def __repr__(self) -> str:
        """Return the call that would make this error again."""
        parts = [repr(self.detail)]
        if self.operation:
            parts.append(f"operation={self.operation!r}")
        if self.transport:
            parts.append(f"transport={self.transport!r}")
        if self.peer_rank is not None:
            parts.append(f"peer_rank={self.peer_rank!r}")
        if self.errno is not None:
            parts.append(f"errno={self.errno!r}")
        return f"{type(self).__name__}({', '.join(parts)})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle with every attribute (OSError keeps `errno` outside the dictionary)."""
        return type(self), (self.detail,), {**self.__dict__, "errno": self.errno}


class ArgumentError(RmaError, ValueError):
    """An argument has the right type and a value that is not possible."""

    code = "InvalidArgument"


class ArgumentTypeError(RmaError, TypeError):
    """An argument has the wrong type."""

    code = "InvalidType"


class ReadOnlyBufferError(RmaError, BufferError):
    """Memory that has to be written is read-only."""

    code = "ReadOnly"


class RangeError(RmaError, IndexError):
    """A rank, a notification or a range of bytes lies outside the window."""

    code = "OutOfRange"


class NotRegisteredError(RmaError, ValueError):
    """The memory is not registered."""

    code = "NotRegistered"


class AccessError(RmaError, PermissionError):
    """The memory is registered without the right that the operation needs."""

    code = "AccessDenied"


class StaleError(RmaError, LookupError):
    """The memory was registered once and is no more (its generation has passed)."""

    code = "Stale"


class EpochError(RmaError, RuntimeError):
    """The call does not fit the epoch: none is open, or another one is."""

    code = "WrongEpoch"


class UnsupportedError(RmaError, NotImplementedError):
    """The build, the transport or the kind of memory cannot do it."""

    code = "Unsupported"


class ResourceError(RmaError, MemoryError):
    """Memory, descriptors or a stated limit are exhausted."""

    code = "ResourceExhausted"


class BusyError(RmaError, RuntimeError):
    """The object is in use by a call that has not returned."""

    code = "Busy"


class RmaTimeoutError(RmaError, TimeoutError):
    """The deadline passed; the call's own text says what is still outstanding."""

    code = "Timeout"


class NotifyTimeoutError(RmaTimeoutError):
    """The deadline of a wait for notifications passed; nothing was consumed."""

    code = "NotifyTimeout"


class TransportError(RmaError, OSError):
    """No transport can do it.

    Parameters
    ----------
    message, operation, transport, peer_rank, errno
        As for `RmaError`.
    reasons : mapping of str to str or None, default None
        For each transport that was considered, why it cannot be used.
    """

    code = "Unavailable"

    def __init__(
        self,
        message: str = "",
        *,
        operation: str = "",
        transport: str = "",
        peer_rank: int | None = None,
        errno: int | None = None,
        reasons: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(
            message, operation=operation, transport=transport, peer_rank=peer_rank, errno=errno
        )
        self.reasons: dict[str, str] = dict(reasons or {})

    def __str__(self) -> str:
        """Return the text with one line for each reason."""
        lines = [super().__str__()]
        lines += [f"  {name}: {reason}" for name, reason in self.reasons.items()]
        return "\n".join(lines)


class NotConnectedError(RmaError, ConnectionError):
    """There is no connection to that peer."""

    code = "NotConnected"


class TransferError(RmaError, OSError):
    """An operation failed on its way; the bytes at its target are undefined."""

    code = "TransferFailed"


class PeerLostError(RmaError, ConnectionError):
    """The process at the other side is gone; later calls to it fail at once."""

    code = "PeerLost"


class CanceledError(RmaError):
    """The operation was canceled before it was complete."""

    code = "Canceled"


class ClosedError(RmaError, ValueError):
    """The object was freed or closed before this call."""

    code = "Closed"


class ForkedError(RmaError, RuntimeError):
    """The object belongs to the parent of this process; a forked child may not use it."""

    code = "Forked"


class ProtocolError(RmaError, ConnectionError):
    """The other side speaks another protocol or another version of it."""

    code = "ProtocolMismatch"


class AuthenticationError(RmaError, PermissionError):
    """The other side could not prove who it is."""

    code = "AuthFailed"


class BootstrapError(RmaError, RuntimeError):
    """The ranks could not be brought together."""

    code = "Bootstrap"


class InternalError(RmaError, RuntimeError):
    """A bug of this package: please report it with the text of the error."""

    code = "Internal"


by_code: dict[str, type[RmaError]] = {
    cls.code: cls
    for cls in (
        ArgumentError,
        ArgumentTypeError,
        ReadOnlyBufferError,
        RangeError,
        NotRegisteredError,
        AccessError,
        StaleError,
        EpochError,
        UnsupportedError,
        ResourceError,
        BusyError,
        RmaTimeoutError,
        NotifyTimeoutError,
        TransportError,
        NotConnectedError,
        TransferError,
        PeerLostError,
        CanceledError,
        ClosedError,
        ForkedError,
        ProtocolError,
        AuthenticationError,
        BootstrapError,
        InternalError,
    )
}
"""The class for each name of a native status code."""
