# SPDX-License-Identifier: Apache-2.0
"""What the openers of epochs return: a `with` statement over it closes the epoch."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from hixl_rma.errors import RmaError
from hixl_rma.logs import logger

__all__ = ["EpochGuard"]


class EpochGuard:
    """Closes an epoch at the end of a `with` body. Without `with` it does nothing.

    Parameters
    ----------
    close : callable
        Ends the epoch.
    close_after_error : bool
        Whether the epoch is also ended when the body raised. Not for what waits for other ranks:
        they may never come once this one has failed.
    """

    __slots__ = ("_close", "_close_after_error")

    def __init__(self, close: Callable[[], object], *, close_after_error: bool) -> None:
        self._close = close
        self._close_after_error = close_after_error

    def __enter__(self) -> EpochGuard:
        """Return the guard: the opener has acted already."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the epoch; an error of the body is never replaced by one of the end."""
        if error is None:
            self._close()
        elif self._close_after_error:
            try:
                self._close()
            except RmaError as second:
                logger.info("closing an epoch after an error failed too: %s", second)
