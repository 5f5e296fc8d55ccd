# SPDX-License-Identifier: Apache-2.0
"""Handles of operations that may complete later."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

from hixl_rma import _native
from hixl_rma.config import validate_timeout
from hixl_rma.errors import RmaError

__all__ = ["Request"]

# An awaited request is looked at this often at most; a done one is seen at once.
_LONGEST_PAUSE = 0.001


class Request:
    """One operation: ask whether it is complete, wait for it, or await it.

    Complete means placed at the target (of a get: placed at the origin). The memory the operation
    works on is kept alive until then, also when nobody keeps the request. Requests are made by the
    ``r...`` methods of a window.
    """

    __slots__ = ("_native",)

    def __init__(self, native: _native.NativeRequest) -> None:
        self._native = native

    def test(self) -> bool:
        """Make progress and return whether the operation is complete; never blocks."""
        return self._native.test()

    @property
    def done(self) -> bool:
        """Whether the operation is complete, as far as is known without making progress."""
        return self._native.done

    @property
    def status(self) -> str:
        """One of ``"pending"``, ``"completed"``, ``"failed"``."""
        if not self._native.done:
            return "pending"
        try:
            self._native.wait(0)
        except RmaError:
            return "failed"
        return "completed"

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the operation is complete.

        Parameters
        ----------
        timeout : float or None, default None
            Seconds to wait; None waits until success or the loss of the peer.

        Raises
        ------
        RmaTimeoutError
            When the time is up; the operation stays outstanding and can be waited for again.
        RmaError
            What went wrong with the operation; raised again by each later wait.
        """
        self._native.wait(validate_timeout(timeout))

    def __await__(self) -> Generator[Any, None, None]:
        """Wait without holding up the event loop."""
        return self._awaited().__await__()

    async def _awaited(self) -> None:
        pause = 0.0
        while not self.test():
            await asyncio.sleep(pause)
            pause = min(_LONGEST_PAUSE, pause + 1e-5)
        self.wait(0)

    def __repr__(self) -> str:
        """Say what has become of it."""
        return f"<Request {self.status}>"
