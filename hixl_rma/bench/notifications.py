# SPDX-License-Identifier: Apache-2.0
"""Notifications: one way, among many ids and origins, and the cost of a waiter that sleeps."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Iterator
from itertools import repeat

import numpy as np

from hixl_rma.bench.catalogue import ALLOCATED, KIB, Row
from hixl_rma.bench.session import ORIGIN, Session
from hixl_rma.bench.timing import Effort, Loop, Samples, Side, Stalled, take_turns
from hixl_rma.bootstrap import LocalBootstrap
from hixl_rma.errors import NotifyTimeoutError
from hixl_rma.window import Window

__all__ = ["put_notify", "sleeping", "wait"]

_IDS = 256
_PATIENCE_S = 2.0  # after which MPI's flag counts as stalled
_LOOKS = 4096  # at the flag between two at the clock
_FLAG = 64  # its place in MPI's window [bytes]
_SPIN = "HIXL_RMA_SPIN_US"
_SLEEP_S = 0.5


def put_notify(session: Session, row: Row, effort: Effort) -> Samples | None:
    """Measure 8 bytes with a notification, one way: half of a round trip.

    MPI has no notification. Its idiom is put, flush, an atomic store into a flag, flush; the
    receiver looks at its own memory with Sync.
    """
    ours = session.window(4 * KIB)
    ours.lock_all()
    theirs = session.their_window(ALLOCATED, 4 * KIB)
    theirs.Lock_all()
    loops = {"ours": _our_round(session, ours, row.size), "mpi": _flag_round(session, theirs)}
    found: list[Samples] = []

    def body() -> None:
        sides = {
            name: Side(loop, session.order(loops, name), share=0.5) for name, loop in loops.items()
        }
        found.append(take_turns(sides, effort))

    session.together(body, loops)
    theirs.Unlock_all()
    theirs.Free()
    ours.unlock_all()
    ours.free()
    return found[0] if found else None


def _our_round(session: Session, win: Window, size: int) -> Loop:
    data, peer, first = np.ones(size, np.uint8), 1 - session.rank, session.is_origin
    put, wait_notify = win.put_notify, win.wait_notify

    def loop(times: int) -> None:
        for _ in repeat(None, times):
            if first:
                put(data, peer, 0, notification=1)
                wait_notify(1, source=peer)
            else:
                wait_notify(1, source=peer)
                put(data, peer, 0, notification=1)

    return loop


def _flag_round(session: Session, win: object) -> Loop:
    theirs, mpi, peer = win, session.mpi, 1 - session.rank
    flag = np.frombuffer(theirs.tomemory(), "i8")[_FLAG // 8 :]  # type: ignore[attr-defined]
    count, data = np.zeros(1, "i8"), np.ones(1, "i8")
    sync, put = theirs.Sync, theirs.Put  # type: ignore[attr-defined]
    replace, flush = theirs.Accumulate, theirs.Flush  # type: ignore[attr-defined]

    def send() -> None:
        put(data, peer, 0)
        flush(peer)
        replace(count, peer, _FLAG, mpi.REPLACE)
        flush(peer)

    def receive() -> None:
        expected, looks, end = int(count[0]), 0, 0.0
        while flag[0] < expected:
            sync()
            looks += 1
            if looks % _LOOKS == 0:
                end = end or time.monotonic() + _PATIENCE_S
                if time.monotonic() > end:
                    raise Stalled

    def loop(times: int) -> None:
        for _ in repeat(None, times):
            count[0] += 1
            if session.is_origin:
                send()
                receive()
            else:
                receive()
                send()

    def patient(times: int) -> None:
        with contextlib.nullcontext() if session.is_origin else contextlib.suppress(Stalled):
            loop(times)

    return patient


# ------------------------------------------------------------------------- many ids, many origins


class _Crowd:
    """A window with many ranks in two processes: even ones in the first, odd ones in the second.

    Each process waits as one rank, 0 or 1, and notifies as all of its ranks in turn.
    """

    def __init__(self, session: Session, ranks: int) -> None:
        name = session.comm.bcast(f"bench-{os.getpid()}-{time.time_ns()}", ORIGIN)
        self._made: dict[int, tuple[LocalBootstrap, Window]] = {}
        self._errors: list[Exception] = []
        numbers = range(session.rank, ranks, 2)
        threads = [threading.Thread(target=self._make, args=(name, n, ranks)) for n in numbers]
        with _spinning():
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        if self._errors:
            raise self._errors[0]
        self.windows = [self._made[number][1] for number in numbers]
        for window in self.windows:
            window.lock_all()

    def _make(self, name: str, rank: int, ranks: int) -> None:
        try:
            bootstrap = LocalBootstrap(name, rank, ranks)
            window = Window.allocate(64, comm=bootstrap, notifications=_IDS)
            self._made[rank] = bootstrap, window
        except Exception as error:
            self._errors.append(error)

    def round(self, session: Session, single: bool) -> Loop:
        """Return a loop over round trips between the two waiting ranks."""
        waiter, peer, first = self.windows[0], 1 - session.rank, session.is_origin
        senders = itertools.cycle(self.windows)
        ids = itertools.cycle([1] if single else [(7 * i) % _IDS for i in range(_IDS)])
        selector = (1,) if single else ()

        def loop(times: int) -> None:
            for _ in repeat(None, times):
                if first:
                    next(senders).notify(peer, notification=next(ids))
                    waiter.wait_notify(*selector)
                else:
                    waiter.wait_notify(*selector)
                    next(senders).notify(peer, notification=next(ids))

        return loop

    def close(self) -> None:
        """Free the window as each rank; collective."""

        def free(bootstrap: LocalBootstrap, window: Window) -> None:
            window.unlock_all()
            window.free()
            bootstrap.close()

        threads = [threading.Thread(target=free, args=pair) for pair in self._made.values()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


@contextlib.contextmanager
def _spinning() -> Iterator[None]:
    """Let waits spin as with two ranks: of the many, only two processes ever run."""
    before = os.environ.get(_SPIN)
    os.environ.setdefault(_SPIN, "50")
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_SPIN)


def wait(session: Session, row: Row, effort: Effort) -> Samples | None:
    """Measure a notification without data, one way, among so many ids and origins."""
    single = row.scenario == "wait_one"
    origins = 1 if single else int(row.scenario.rpartition("_")[2])
    crowd = _Crowd(session, origins + 1)
    loops = {"ours": crowd.round(session, single)}
    found: list[Samples] = []

    def body() -> None:
        side = Side(loops["ours"], session.order(loops, "ours"), share=0.5)
        found.append(take_turns({"ours": side}, effort))

    session.together(body, loops)
    crowd.close()
    return found[0] if found else None


def sleeping(session: Session, row: Row, effort: Effort) -> Samples | None:
    """Measure what a waiter takes of a processor while nothing comes, in percent."""
    win = session.ours(row.window)
    samples = Samples()

    def body() -> None:
        shares = samples.turns.setdefault("ours", [])
        for _ in range(1 + effort.fewest // 4):
            wall, busy = time.perf_counter(), time.process_time()
            with contextlib.suppress(NotifyTimeoutError):
                win.wait_notify(_IDS - 1, timeout=_SLEEP_S)
            busy, wall = time.process_time() - busy, time.perf_counter() - wall
            shares.append(100 * busy / wall)

    session.at_origin("asleep", body)
    return samples if session.is_origin else None
