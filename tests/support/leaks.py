# SPDX-License-Identifier: Apache-2.0
"""What a process holds: descriptors, threads and names in /dev/shm, before and after a test."""

from __future__ import annotations

import contextlib
import gc
import time
from dataclasses import dataclass
from pathlib import Path


def _links(folder: Path) -> dict[str, str]:
    found = {}
    for entry in folder.iterdir():
        # The descriptor of this very listing is gone by the time it is looked at.
        with contextlib.suppress(OSError):
            found[entry.name] = str(entry.readlink())
    return found


def _threads() -> dict[str, str]:
    found = {}
    for entry in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            found[entry.name] = (entry / "comm").read_text().strip()
    return found


def _shm_names() -> dict[str, str]:
    """Names with our prefix or mapped here; those of other programs come and go."""
    mapped = {
        line.split(maxsplit=5)[5].strip()
        for line in Path("/proc/self/maps").read_text().splitlines()
        if "/dev/shm/" in line
    }
    folder = Path("/dev/shm")
    if not folder.is_dir():
        return {}
    return {e.name: "" for e in folder.iterdir() if "hixl" in e.name or str(e) in mapped}


@dataclass(frozen=True)
class Holdings:
    """Everything counted at one moment: kind -> {name: detail}."""

    kinds: dict[str, dict[str, str]]

    @classmethod
    def now(cls) -> Holdings:
        """Take stock of this process."""
        return cls(
            {
                "file descriptor": _links(Path("/proc/self/fd")),
                "thread": _threads(),
                "/dev/shm name": _shm_names(),
            }
        )

    def gained_since(self, before: Holdings) -> list[str]:
        """Return a line for each thing that is here now and was not before."""
        return [
            f"{kind} {name} {detail}".rstrip()
            for kind, now in self.kinds.items()
            for name, detail in now.items()
            if before.kinds[kind].get(name) != detail
        ]


def wait_until_clean(before: Holdings, seconds: float = 2.0) -> list[str]:
    """Return what leaked, after letting threads that were told to stop leave the process.

    Parameters
    ----------
    before : Holdings
        What the process held when the test began.
    seconds : float
        How long a thing that is on its way out may take.
    """
    gc.collect()
    end = time.monotonic() + seconds
    while leaked := Holdings.now().gained_since(before):
        if time.monotonic() > end:
            return leaked
        time.sleep(0.01)
    return []
