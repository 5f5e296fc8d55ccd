# SPDX-License-Identifier: Apache-2.0
"""One of two processes in which ours and NIXL move the same bytes in turns.

Runs in an environment that has NIXL, as a rank of the job in ``HIXL_RMA_LOCAL_JOB``; rank 0 is the
origin and prints a JSON line for each size, rank 1 sleeps.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
from collections.abc import Callable
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from hixl_rma.bench import limits
from hixl_rma.bench.catalogue import BLOCK, BLOCKS, KIB, MIB
from hixl_rma.bench.results import ratio
from hixl_rma.bench.timing import Effort, Loop, Side, each, take_turns
from hixl_rma.bootstrap import Bootstrap
from hixl_rma.bootstrap.choose import resolve
from hixl_rma.window import Window

_SIZES = (8, 64 * KIB, MIB, 64 * MIB)
_POOL = 64 * MIB
_TARGET = 1


def _api() -> Any:  # noqa: ANN401
    try:
        return importlib.import_module("nixl_cu12._api")
    except ImportError:
        return importlib.import_module("nixl._api")


class Agent:
    """An agent of NIXL that knows the other rank's."""

    def __init__(self, ranks: Bootstrap, memory: npt.NDArray[np.uint8]) -> None:
        api = _api()
        config = api.nixl_agent_config(backends=[], enable_prog_thread=True)
        self._agent = api.nixl_agent(f"rank{ranks.rank}", config)
        # Its usual handling of errors leaves shared memory out.
        self._agent.create_backend("UCX", {"ucx_error_handling_mode": "none"})
        self._base = memory.ctypes.data
        self._kept = self._agent.register_memory([(self._base, memory.nbytes, 0, "")], "DRAM")
        known = ranks.allgather(self._agent.get_agent_metadata(), None)
        bases = ranks.allgather(self._base.to_bytes(8, "little"), None)
        self._peer = f"rank{1 - ranks.rank}"
        self._agent.add_remote_agent(known[1 - ranks.rank])
        self._remote = int.from_bytes(bases[1 - ranks.rank], "little")

    def writes(self, pieces: list[tuple[int, int, int]]) -> Loop:
        """Return a loop over one transfer of pieces (offset here, offset there, bytes)."""
        agent = self._agent
        here = np.array([(self._base + at, n, 0) for at, _, n in pieces], np.uint64)
        there = np.array([(self._remote + to, n, 0) for _, to, n in pieces], np.uint64)
        handle = agent.initialize_xfer(
            "WRITE",
            agent.get_xfer_descs(here, "DRAM"),
            agent.get_xfer_descs(there, "DRAM"),
            self._peer,
        )

        def loop(times: int) -> None:
            for _ in repeat(None, times):
                state = agent.transfer(handle)
                while state == "PROC":
                    state = agent.check_xfer_state(handle)
                if state != "DONE":
                    msg = f"the transfer ended in state {state}"
                    raise RuntimeError(msg)

        return loop


def _print(name: str, size: int, sides: dict[str, Side], effort: Effort) -> None:
    samples = take_turns(sides, effort)
    medians = {side: float(np.median(turns)) for side, turns in samples.turns.items()}
    fields = {
        "name": name,
        "bytes": size,
        **{side: round(value, 3) for side, value in medians.items()},
        "times_as_fast": ratio(samples.turns["theirs"], samples.turns["ours"]),
    }
    print(json.dumps(fields), flush=True)


def _origin(win: Window, agent: Agent, memory: npt.NDArray[np.uint8], effort: Effort) -> None:
    remote = win.remote(_TARGET)
    for size in _SIZES:
        data = memory[:size]
        sides = {
            "ours": Side(each(win.put, data, _TARGET, 0, then=win.flush, rank=_TARGET)),
            "theirs": Side(agent.writes([(0, 0, size)])),
            "limit": Side(limits.memcpy(remote[:size], data)),
        }
        _print("write", size, sides, effort)
    where = np.random.default_rng(7).permutation(_POOL // BLOCK)[:BLOCKS]
    pieces = [(number * BLOCK, int(to) * BLOCK, BLOCK) for number, to in enumerate(where)]
    ops = np.array([(memory.ctypes.data + at, to, n) for at, to, n in pieces], np.uint64)
    blocks = memory[: BLOCKS * BLOCK]
    sides = {
        "ours": Side(each(win.put_v, ops, _TARGET, then=win.flush, rank=_TARGET)),
        "theirs": Side(agent.writes(pieces)),
        "limit": Side(limits.BlockCopy(remote, blocks, where, BLOCK)),
    }
    _print(f"write of {BLOCKS}", BLOCK, sides, effort)


def main() -> int:
    """Measure as one of the two ranks."""
    effort = Effort(seconds=0.05, fewest=5) if "--quick" in sys.argv[1:] else Effort()
    ranks = resolve()
    memory = np.full(_POOL, 1, np.uint8)
    agent = Agent(ranks, memory)
    win = Window.allocate(_POOL, comm=ranks)
    win.local[:] = 0
    win.lock_all()
    ranks.allgather(b"ready", None)
    if ranks.rank == 0:
        _origin(win, agent, memory, effort)
    _leave(lambda: ranks.allgather(b"done", None))
    return 0


def _leave(meet: Callable[[], object]) -> None:
    """Wait for the other rank, and leave without NIXL's own end, which may hang."""
    meeting = threading.Thread(target=meet)
    meeting.start()
    meeting.join()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
