# SPDX-License-Identifier: Apache-2.0
"""Puts and gets of one piece and of many blocks, beside memcpy and cross-process copies."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from hixl_rma.bench import limits
from hixl_rma.bench.catalogue import ALLOCATED, BLOCK, BLOCKS, MIB, Row
from hixl_rma.bench.session import TARGET, Session
from hixl_rma.bench.timing import Effort, Loop, Samples, Side, each, take_turns

__all__ = ["blocks", "get", "put", "slowdown"]

_TWO_THREADS = MIB  # the least size at which a second thread can pay at all
_SLOWDOWN_S = 0.04  # of each side of a turn, for some thousand steps of the peer


def put(session: Session, row: Row, effort: Effort) -> Samples | None:
    """Measure put + flush."""
    return _transfer(session, row, effort, read=False)


def get(session: Session, row: Row, effort: Effort) -> Samples | None:
    """Measure get + flush."""
    return _transfer(session, row, effort, read=True)


def _transfer(session: Session, row: Row, effort: Effort, *, read: bool) -> Samples | None:
    win, theirs = session.ours(row.window), session.theirs(row.window)
    address = session.target_address(row.window)
    found: list[Samples] = []

    def body() -> None:
        origin = session.origin[: row.size]
        there = (0, row.size, session.mpi.BYTE)
        here = [origin, row.size, session.mpi.BYTE]
        ours = each(win.get if read else win.put, origin, TARGET, 0, then=win.flush, rank=TARGET)
        mpi = each(
            theirs.Get if read else theirs.Put, here, TARGET, there, then=theirs.Flush, rank=TARGET
        )
        with _limits(session, row, address, read=read) as sides:
            sides |= {"ours": Side(ours), "mpi": Side(mpi, session.guard(row.size))}
            found.append(take_turns(sides, effort))

    session.at_origin(row.state, body)
    return found[0] if found else None


@contextlib.contextmanager
def _limits(session: Session, row: Row, address: int, *, read: bool) -> Iterator[dict[str, Side]]:
    """Yield the sides that show what the memory allows."""
    origin = session.origin[: row.size]
    if row.window == ALLOCATED:
        remote = session.ours(ALLOCATED).remote(TARGET)[: row.size]
        to, of = (origin, remote) if read else (remote, origin)
        loop, halves = limits.memcpy(to, of), limits.Halves.of_memcpy(to, of)
    else:
        copy = limits.CrossProcess(session.pids[TARGET], address, origin, read=read)
        loop, halves = copy.loop(), limits.Halves(copy.half(False).once, copy.half(True).once)
    sides = {"limit": Side(loop)}
    if row.size >= _TWO_THREADS:
        sides["limit of 2 threads"] = Side(halves)
    try:
        yield sides
    finally:
        halves.close()


def blocks(session: Session, row: Row, effort: Effort) -> Samples | None:
    """Measure one put_v of many blocks to scattered places, beside copies of the same blocks."""
    win, theirs = session.ours(row.window), session.theirs(row.window)
    address = session.target_address(row.window)
    pool = min(session.size // BLOCK, 4 * BLOCKS)
    where = np.random.default_rng(7).permutation(pool)[:BLOCKS]
    found: list[Samples] = []

    def body() -> None:
        origin = session.origin[: BLOCKS * BLOCK]
        ops = np.empty((BLOCKS, 3), np.uint64)
        ops[:, 0] = origin.ctypes.data + np.arange(BLOCKS) * BLOCK
        ops[:, 1] = where * BLOCK
        ops[:, 2] = BLOCK
        if row.window == ALLOCATED:
            remote = win.remote(TARGET)[: pool * BLOCK]
            limit: Loop = limits.BlockCopy(remote, origin, where, BLOCK)
        else:
            copy = limits.CrossProcess(session.pids[TARGET], address, origin, read=False)
            limit = copy.blocks(where, BLOCK)
        sides = {
            "ours": Side(each(win.put_v, ops, TARGET, then=win.flush, rank=TARGET)),
            "limit": Side(limit),
            "mpi": Side(_many_puts(session, theirs, where.tolist()), session.guard(BLOCKS * BLOCK)),
        }
        found.append(take_turns(sides, effort))

    session.at_origin(row.state, body)
    return found[0] if found else None


def _many_puts(session: Session, theirs: Any, where: list[int]) -> Loop:  # noqa: ANN401
    kind = session.mpi.BYTE
    pieces = [
        (
            [session.origin[number * BLOCK : (number + 1) * BLOCK], BLOCK, kind],
            (place * BLOCK, BLOCK, kind),
        )
        for number, place in enumerate(where)
    ]

    def loop(times: int) -> None:
        for _ in itertools.repeat(None, times):
            for here, there in pieces:
                theirs.Put(here, TARGET, there)
            theirs.Flush(TARGET)

    return loop


def slowdown(session: Session, row: Row, effort: Effort) -> Samples | None:
    """Measure by how much puts slow down a peer that computes, in percent.

    Beside the same peer while the origin computes too, in its caches: both are as busy, and what
    remains is what the transfer takes from the peer.
    """
    win = session.ours(row.window)
    samples = Samples()

    def steps_per_second(loop: Loop) -> float:
        work, start = session.work_done(), time.perf_counter()
        while (passed := time.perf_counter() - start) < _SLOWDOWN_S:
            loop(1)
        return (session.work_done() - work) / passed

    def body() -> None:
        origin = session.origin[: row.size]
        ours = each(win.put, origin, TARGET, 0, then=win.flush, rank=TARGET)
        ours(1)
        end = time.monotonic() + 2 * effort.seconds
        turns = samples.turns.setdefault("ours", [])
        while len(turns) < effort.fewest or time.monotonic() < end:
            alone = steps_per_second(lambda _: sum(range(1000)))
            turns.append(max(0.0, 100 * (1 - steps_per_second(ours) / alone)))

    session.at_origin(row.state, body)
    return samples if session.is_origin else None
