# SPDX-License-Identifier: Apache-2.0
"""One-sided communication between the processes of a parallel program or an inference service.

Ranks make a `Window` over memory and put, get, accumulate and notify into each other's, with the
meaning that MPI gives these words; a native engine moves the bytes. ``python -m hixl_rma info``
tells what works on a machine, and why not.
"""

from hixl_rma import _broken, logs
from hixl_rma.bootstrap import Bootstrap, LocalBootstrap, MpiBootstrap
from hixl_rma.config import Config
from hixl_rma.errors import (
    AccessError,
    ArgumentError,
    ArgumentTypeError,
    AuthenticationError,
    BootstrapError,
    BusyError,
    CanceledError,
    ClosedError,
    EpochError,
    ForkedError,
    InternalError,
    NotConnectedError,
    NotifyTimeoutError,
    NotRegisteredError,
    PeerLostError,
    ProtocolError,
    RangeError,
    ReadOnlyBufferError,
    ResourceError,
    RmaError,
    RmaTimeoutError,
    StaleError,
    TransferError,
    TransportError,
    UnsupportedError,
)
from hixl_rma.statistics import PeerStats, TransportStats, WaitStats, WindowStats

try:
    from hixl_rma.notification import ANY, ANY_SOURCE, Notification
    from hixl_rma.request import Request
    from hixl_rma.window import (
        NOCHECK,
        NOPRECEDE,
        NOPUT,
        NOSTORE,
        NOSUCCEED,
        EpochGuard,
        Window,
    )
except _broken.NativeModuleError:
    # `python -m hixl_rma info` is there to tell what is wrong: it has to start.
    if not _broken.as_command():
        raise

__version__ = "0.1.0"

logs.setup()

__all__ = [
    "ANY",
    "ANY_SOURCE",
    "NOCHECK",
    "NOPRECEDE",
    "NOPUT",
    "NOSTORE",
    "NOSUCCEED",
    "AccessError",
    "ArgumentError",
    "ArgumentTypeError",
    "AuthenticationError",
    "Bootstrap",
    "BootstrapError",
    "BusyError",
    "CanceledError",
    "ClosedError",
    "Config",
    "EpochError",
    "EpochGuard",
    "ForkedError",
    "InternalError",
    "LocalBootstrap",
    "MpiBootstrap",
    "NotConnectedError",
    "NotRegisteredError",
    "Notification",
    "NotifyTimeoutError",
    "PeerLostError",
    "PeerStats",
    "ProtocolError",
    "RangeError",
    "ReadOnlyBufferError",
    "Request",
    "ResourceError",
    "RmaError",
    "RmaTimeoutError",
    "StaleError",
    "TransferError",
    "TransportError",
    "TransportStats",
    "UnsupportedError",
    "WaitStats",
    "Window",
    "WindowStats",
    "__version__",
]
