# SPDX-License-Identifier: Apache-2.0
"""Logging: the standard library's logger ``hixl_rma``, silent until somebody listens.

Lines of the native engine arrive in batches through `emit_native` under ``hixl_rma.native``.
``HIXL_RMA_LOG=debug|info|warning`` prints them without a line of code in the program.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterable, Mapping

from hixl_rma import config, errors

__all__ = ["emit_native", "logger", "native_level", "setup"]

logger = logging.getLogger("hixl_rma")
logger.addHandler(logging.NullHandler())
_native = logger.getChild("native")

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
_FORMAT = "%(asctime)s.%(msecs)03d %(name)s[%(process)d] %(levelname)s: %(message)s"


class _StandardError(logging.Handler):
    """Writes to what `sys.stderr` is at that moment, also after someone has replaced it."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        stream = sys.stderr
        if stream is None:  # a program without a console
            return
        try:
            stream.write(f"{self.format(record)}\n")
            stream.flush()
        except Exception:
            self.handleError(record)


_handler: _StandardError | None = None


def setup(environ: Mapping[str, str] | None = None) -> None:
    """Install the handler for standard error when ``HIXL_RMA_LOG`` asks for one.

    Parameters
    ----------
    environ : mapping of str to str or None, default None
        The environment; None takes that of the process.

    Notes
    -----
    Runs when the package is imported, hence a value that names no level is a RuntimeWarning here
    (the first window raises ArgumentError for it). A second call changes the level and adds no
    second handler. Lines go on to the handlers of the program too.
    """
    global _handler
    text = (os.environ if environ is None else environ).get("HIXL_RMA_LOG", "").strip()
    if not text:
        return
    try:
        level = _LEVELS[config.parse_log_level(text)]
    except errors.ArgumentError as error:
        warnings.warn(f"HIXL_RMA_LOG={text!r}: {error.detail}", RuntimeWarning, stacklevel=2)
        return
    if _handler is None:
        _handler = _StandardError()
        _handler.setFormatter(logging.Formatter(_FORMAT, "%H:%M:%S"))
        logger.addHandler(_handler)
    _handler.setLevel(level)
    if logger.level == logging.NOTSET or logger.level > level:
        logger.setLevel(level)


def native_level() -> str:
    """Return the lowest level that anyone listens to.

    Returns
    -------
    str
        ``"debug"``, ``"info"``, ``"warning"`` or ``"error"``: what the native engine need not
        even format lies below it.
    """
    effective = _native.getEffectiveLevel()
    return next((name for name, level in _LEVELS.items() if level >= effective), "error")


def emit_native(records: Iterable[tuple[str, str]]) -> None:
    """Hand lines of the native engine to the logger.

    Parameters
    ----------
    records : iterable of (str, str)
        The level's name, in any case, and the text, which is taken as it stands.
    """
    for name, text in records:
        _native.log(_LEVELS.get(name.lower(), logging.INFO), "%s", text)
