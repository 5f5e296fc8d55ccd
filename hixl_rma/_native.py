# SPDX-License-Identifier: Apache-2.0
"""The one door to the compiled module.

Nothing else imports `hixl_rma._core`. Importing this module tells the native code which exception
stands for which status, and which function finds memory in objects without a buffer.
"""

from __future__ import annotations

import os
import threading

from hixl_rma import _broken, errors, logs

try:
    from hixl_rma import _core
except ImportError as error:
    # The text has the reason; Python's own takes a missing file for a circular import.
    raise _broken.NativeModuleError(error) from None

__all__ = [
    "CoreWindow",
    "Engine",
    "EpochGuard",
    "NativeRequest",
    "Notification",
    "engine_for",
    "forward_log",
    "location",
    "probe_transports",
    "set_buffer_converter",
]

CoreWindow = _core.Window
Engine = _core.Engine
EpochGuard = _core.EpochGuard
NativeRequest = _core.Request
Notification = _core.Notification
set_buffer_converter = _core.set_buffer_converter

_core.register_error_classes(errors.by_code)

_engines: dict[tuple[int, tuple[str, ...]], _core.Engine] = {}
_engines_lock = threading.Lock()


def engine_for(transports: tuple[str, ...] | None) -> _core.Engine:
    """Return the engine of this process whose data may take these transports (None: all)."""
    # The process is part of the key: a forked child has to make its own.
    key = (os.getpid(), transports or ())
    with _engines_lock:
        if key not in _engines:
            _engines[key] = _core.Engine(list(key[1]))
        return _engines[key]


def probe_transports() -> list[tuple[str, bool, str]]:
    """Return (name, viable, reason) for each transport of this build."""
    return _core.Engine([]).reports()


def location() -> str:
    """Return the file that the compiled module was loaded from."""
    return str(_core.__file__)


def forward_log() -> None:
    """Hand the lines that native code left to the logger."""
    lines = _core.drain_log()
    if lines:
        logs.emit_native(lines)
