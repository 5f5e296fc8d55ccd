# SPDX-License-Identifier: Apache-2.0
"""Threads and processes that wait, and signals that wake them."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any


def asleep(pid: int, thread: int | None = None, timeout: float = 20.0) -> None:
    """Return when the kernel has a thread asleep, several times in a row; the main one by default.

    A call that waits spins first and sleeps then: its place in a queue is taken by that time.
    """
    status = Path(f"/proc/{pid}/task/{thread or pid}/stat")
    end, seen = time.monotonic() + timeout, 0
    while seen < 5:
        state = status.read_text().rpartition(")")[2].split()[0]
        seen = seen + 1 if state == "S" else 0
        if time.monotonic() > end:
            message = f"process {pid} is not asleep after {timeout} s"
            raise AssertionError(message)
        time.sleep(0.002)


class ProcessorQueue:
    """How long the calling thread has stood ready to run while others had the processors.

    Latencies less this time are those of the code, whatever else the machine does.
    """

    def __init__(self) -> None:
        self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)

    def seconds(self) -> float:
        """Return the total since the thread began."""
        return int(os.pread(self._file, 100, 0).split()[1]) * 1e-9

    def close(self) -> None:
        """Close the file of the kernel's counters."""
        os.close(self._file)


def stolen_seconds() -> float:
    """Return how long a hypervisor has kept the processors of this machine from it since boot."""
    total = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return int(total[8]) / os.sysconf("SC_CLK_TCK")


class Worker(threading.Thread):
    """A thread that keeps the result or the error of its call."""

    def __init__(self, call: Callable[..., Any], *arguments: Any) -> None:
        super().__init__(daemon=True)
        self._call, self._arguments = call, arguments
        self._result: Any = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        """Call, and keep what comes of it."""
        try:
            self._result = self._call(*self._arguments)
        except BaseException as error:
            self._error = error

    def result(self, timeout: float = 30.0) -> Any:
        """Wait for the end of the call and return or raise what it did."""
        self.join(timeout)
        assert not self.is_alive(), "the thread has not returned"
        if self._error is not None:
            raise self._error
        return self._result

    def until_asleep(self) -> None:
        """Return when the thread waits in its call."""
        while self.native_id is None:
            time.sleep(0.001)
        asleep(os.getpid(), self.native_id)


class Interrupt:
    """SIGINT for this process, sent by a thread some time after the start."""

    def __init__(self, delay: float) -> None:
        self._timer = threading.Timer(delay, self._send)
        self.sent_at = 0.0

    def _send(self) -> None:
        self.sent_at = time.monotonic()
        os.kill(os.getpid(), signal.SIGINT)

    @contextlib.contextmanager
    def armed(self) -> Iterator[None]:
        """Send the signal during the body; give SIGINT Python's own handler meanwhile."""
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self._timer.start()
        try:
            yield
        finally:
            self._timer.cancel()
            self._timer.join()
            signal.signal(signal.SIGINT, before)


def seconds_until_interrupted(call: Callable[[], object], delay: float = 0.05) -> float:
    """Interrupt a call that waits; return how long after the signal it raised."""
    interrupt = Interrupt(delay)
    with interrupt.armed():
        try:
            call()
        except KeyboardInterrupt:
            return time.monotonic() - interrupt.sent_at
    message = "the call returned without the interrupt"
    raise AssertionError(message)
