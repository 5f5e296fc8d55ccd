# SPDX-License-Identifier: Apache-2.0
"""Check the direction of #include lines in native/.

    bindings > window > engine > registry > transport/<x> > memory > base > include/hixl_rma

A file includes its own layer and those below. A transport never includes another one; above them
only the registry is seen. pybind11 and Python.h belong to the bindings, MPI to nobody, vendor
headers to the one folder that speaks for them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
ORDER = [
    "include",
    "base",
    "memory",
    "common",
    "transport",
    "registry",
    "engine",
    "window",
    "bindings",
    "tests",
]

# Headers of others: who may include them.
FOREIGN = {
    r"(pybind11/.*|Python\.h|structmember\.h|cpython/.*)": ("bindings",),
    r"(mpi|mpicxx)\.h": (),
    r"(gtest|gmock)/.*": ("tests",),
    r"infiniband/.*": ("transport/verbs",),
    r"(acl|hccl|ascendcl)/.*": ("memory/ascend", "transport/hccs"),
    r"(cuda|cuda_runtime.*|nccl)(\.h|/.*)": ("memory/cuda", "transport/cuda"),
}


def place_of(path: str) -> tuple[str, str]:
    """Return (layer, folder) of a path below native/ or of an include as the sources write it.

    The folder is what the tables name: "transport/shm", "memory/host", "engine".
    """
    parts = path.removeprefix("src/").split("/")
    if parts[0] in ("include", "hixl_rma"):
        return "include", "include"
    if parts[0] == "transport":
        inner = parts[1] if len(parts) > 2 else "registry"
        layer = inner if inner in ("registry", "common") else "transport"
        return layer, f"transport/{inner}"
    return parts[0], "/".join(parts[:-1][:2])


def complaint(file: str, quote: str, target: str) -> str | None:
    """Tell what is wrong with one include line, or None."""
    layer, folder = place_of(file)
    for pattern, owners in FOREIGN.items():
        if re.fullmatch(pattern, target):
            fine = folder in owners or layer in owners
            return None if fine else f"<{target}> belongs to {' and '.join(owners) or 'nobody'}"
    if quote == "<":
        return None
    if target.startswith("."):
        return f'"{target}": write the path from native/src or native/include'
    if "/" not in target:
        return None  # the compiler looks beside the file: the same folder
    other, other_folder = place_of(target)
    if other not in ORDER:
        return None if layer == "tests" else f'"{target}" is in no layer'
    if layer == "tests" or folder == other_folder:
        return None
    if ORDER.index(other) > ORDER.index(layer):
        return f'"{target}": {layer} lies below {other}'
    if other == "transport" and layer == "transport":
        return f'"{target}": a transport includes no other transport'
    if other == "transport" and layer != "registry":
        return f'"{target}": transports are known through the registry only'
    return None


def check(native: Path) -> Iterator[str]:
    """Yield a line for each wrong include below a native/ folder."""
    for path in sorted([*native.rglob("*.h"), *native.rglob("*.cc")]):
        file = path.relative_to(native).as_posix()
        if place_of(file)[0] not in ORDER:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            found = INCLUDE.match(line)
            problem = found and complaint(file, found[1], found[2])
            if problem:
                yield f"native/{file}:{number}: {problem}"


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1]
    problems = list(check(root / "native"))
    print(*problems, sep="\n", end="\n" if problems else "")
    print(f"check_includes: {len(problems)} wrong")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
