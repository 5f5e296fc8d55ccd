# SPDX-License-Identifier: Apache-2.0
"""Other libraries beside us: NIXL, in an environment of its own.

Two processes of that environment are peers of ours (by the local bootstrap) and of NIXL at once,
so that ours, NIXL and memcpy take turns like everything else. Each setting of NIXL is a pair of
processes and has its time; one that hangs or fails is reported so.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import hixl_rma
from hixl_rma.bench import launch
from hixl_rma.bench.catalogue import size_text
from hixl_rma.bench.report import number

__all__ = ["SETTINGS", "PeerRow", "measure", "print_table"]

SETTINGS: Mapping[str, Mapping[str, str]] = {
    "NIXL, shared memory": {"UCX_TLS": "posix,sysv,self"},
    "NIXL, cross-process copies": {"UCX_TLS": "posix,sysv,cma,self"},
}
"""What UCX below it may use, by the name of the peer."""

_BOUND_S = 90.0


@dataclasses.dataclass(frozen=True)
class PeerRow:
    """One transfer of a peer beside ours; figures in us, None where there are none."""

    peer: str
    name: str
    bytes: int
    ours: float | None = None
    theirs: float | None = None
    limit: float | None = None
    times_as_fast: float | None = None
    note: str = ""


def measure(python: Path, *, quick: bool) -> list[PeerRow]:
    """Measure every setting; collective with nobody, each within its time."""
    return [row for name in SETTINGS for row in _measure_one(python, name, quick=quick)]


def _measure_one(python: Path, name: str, *, quick: bool) -> list[PeerRow]:
    if not python.exists():
        return [PeerRow(name, "", 0, note="absent: that environment has no interpreter")]
    job = f"bench-{os.getpid()}-{time.time_ns()}"
    package = Path(hixl_rma.__file__).resolve().parents[1]
    pair = []
    for rank in range(2):
        environment = {
            **os.environ,
            **SETTINGS[name],
            "PYTHONPATH": str(package),
            "HIXL_RMA_LOCAL_JOB": f"{job}:{rank}:2",
            "UCX_LOG_LEVEL": "error",
        }
        heard = subprocess.DEVNULL if rank else subprocess.PIPE  # nobody empties a second pipe
        command = [str(python), "-m", "hixl_rma.bench.nixl_pair", *(["--quick"] if quick else [])]
        pair.append(
            subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=heard,
                stderr=heard,
                start_new_session=True,
            )
        )
    try:
        out, said = pair[0].communicate(timeout=_BOUND_S)
        status = pair[0].returncode
    except subprocess.TimeoutExpired:
        return [PeerRow(name, "", 0, note=f"not finished after {_BOUND_S:.0f} s")]
    finally:
        for process in pair:
            launch.end(process)
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
    if status:
        reason = (said.decode(errors="replace").strip().splitlines() or ["no reason given"])[-1]
        return [PeerRow(name, "", 0, note=f"failed: {reason[:200]}")]
    return [
        PeerRow(name, **json.loads(line)) for line in out.decode().splitlines() if line[:1] == "{"
    ]


def print_table(rows: Sequence[PeerRow]) -> None:
    """Print the rows."""
    print("\nbeside other libraries (us; both sides in the same turns, target asleep)")
    for row in rows:
        if row.note:
            print(f"  {row.peer}: {row.note}")
            continue
        print(
            f"  {row.peer:<28} {row.name:<18} {size_text(row.bytes):>8}  ours {number(row.ours):>9}"
            f"  theirs {number(row.theirs):>9}  memcpy {number(row.limit):>9}"
            f"  {number(row.times_as_fast):>7} x as fast"
        )
