# SPDX-License-Identifier: Apache-2.0
"""Facts of the machine that figures depend on; no names of hosts, users or folders."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from pathlib import Path

__all__ = ["facts", "load"]

_ROOT = Path("/")


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _processor(root: Path) -> str:
    text = _read(root / "proc/cpuinfo")
    found = re.search(r"^(?:model name|Hardware|CPU part)\s*:\s*(.+)$", text, re.MULTILINE)
    return found.group(1) if found else platform.machine()


def _caches(root: Path) -> dict[str, str]:
    caches = {}
    for index in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind = _read(index / "level"), _read(index / "type")
        caches[f"L{level} {kind.lower()}"] = _read(index / "size")
    return caches


def load(root: Path = _ROOT) -> str:
    """Return the load averages over 1, 5 and 15 minutes."""
    return " ".join(_read(root / "proc/loadavg").split()[:3])


def _chosen(text: str) -> str:
    """Return the word in brackets, as in ``always [madvise] never``."""
    found = re.search(r"\[(\w+)\]", text)
    return found.group(1) if found else text


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def facts(root: Path = _ROOT) -> dict[str, object]:
    """Return what is known of the machine.

    Parameters
    ----------
    root : Path, default ``/``
        Where proc and sys are.
    """
    system = root / "sys/devices/system"
    memory = re.search(r"MemTotal:\s+(\d+) kB", _read(root / "proc/meminfo"))
    return {
        "processor": _processor(root),
        "machine": platform.machine(),
        "processors": os.cpu_count(),
        "processors allowed": len(os.sched_getaffinity(0)),
        "caches": _caches(root),
        "NUMA nodes": len(list((system / "node").glob("node[0-9]*"))) or 1,
        "memory MiB": int(memory.group(1)) // 1024 if memory else None,
        "kernel": platform.release(),
        "page bytes": os.sysconf("SC_PAGE_SIZE"),
        "huge pages": _chosen(_read(root / "sys/kernel/mm/transparent_hugepage/enabled")),
        "huge pages, shared": _chosen(
            _read(root / "sys/kernel/mm/transparent_hugepage/shmem_enabled")
        ),
        "governor": _read(system / "cpu/cpu0/cpufreq/scaling_governor") or "not visible",
        "versions": {
            "python": platform.python_version(),
            "libc": " ".join(platform.libc_ver()),
            **{name: _version(name) for name in ("hixl-rma", "numpy", "mpi4py")},
        },
    }
