# SPDX-License-Identifier: Apache-2.0
"""Deadlines of tests: a test that hangs shows where, and takes its job with it.

The watchdog is faulthandler's C thread: it needs no GIL, so a native call that never returns and
never releases the interpreter is dumped and ended like any other.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import time

import pytest

DEFAULT_SECONDS = 60.0
"""What one test may take, set-up and tear-down included, on an idle machine."""


def slow_factor() -> float:
    """Return the factor that stretches every deadline of the tests (``HIXL_RMA_TEST_SLOW``)."""
    return max(1.0, float(os.environ.get("HIXL_RMA_TEST_SLOW", "1")))


def seconds_for(item: pytest.Item) -> float:
    """Return the deadline of a test: its marker or the default, times the slow factor."""
    marker = item.get_closest_marker("deadline")
    seconds = DEFAULT_SECONDS if marker is None else float(marker.args[0])
    return seconds * slow_factor()


class HangGuard:
    """Dump all threads and end the process when a test outlives its deadline.

    The exit status is not zero and MPI is not finalized, so mpirun ends the other ranks too.
    """

    def __init__(self) -> None:
        # Output capture replaces descriptor 2 while a test runs; at configure time it is still the
        # real one.
        self.stderr = os.fdopen(os.dup(sys.stderr.fileno()), "w")
        self._end = 0.0

    def arm(self, seconds: float) -> None:
        """Start or restart the countdown."""
        self._end = time.monotonic() + seconds
        faulthandler.dump_traceback_later(seconds, exit=True, file=self.stderr)

    def shift(self, seconds: float) -> None:
        """Move the deadline of this test; 0 puts it back where it was."""
        left = max(self._end + seconds - time.monotonic(), 0.01)
        faulthandler.dump_traceback_later(left, exit=True, file=self.stderr)

    def disarm(self) -> None:
        """Stop the countdown."""
        faulthandler.cancel_dump_traceback_later()

    def say(self, text: str) -> None:
        """Write a line past the output capture."""
        self.stderr.write(text + "\n")
        self.stderr.flush()
