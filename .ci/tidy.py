# SPDX-License-Identifier: Apache-2.0
"""Run clang-tidy on the sources of native/ that changed since they last passed, a few at a time.

A source is looked at again when it, one of our headers that it includes, a .clang-tidy in a folder
above one of them or clang-tidy itself changed; what passed is remembered below build/tidy.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NATIVE = ROOT / "native"
ROOTS = [NATIVE / "include", NATIVE / "src", NATIVE / "bindings", NATIVE / "tests"]
INCLUDE = re.compile(rb'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
# Flags of GCC that clang does not know.
DROPPED = ["-fno-fat-lto-objects", "-flto=auto", "-Wno-tsan"]


@functools.cache
def headers_of(path: Path) -> frozenset[Path]:
    """Return the project headers that a file includes by itself."""
    found = set()
    for name in INCLUDE.findall(path.read_bytes()):
        for folder in [path.parent, *ROOTS]:
            candidate = (folder / name.decode()).resolve()
            if candidate.is_file():
                found.add(candidate)
                break
    return frozenset(found)


def configurations_of(path: Path) -> set[Path]:
    """Return the .clang-tidy files that apply to a file: each may inherit from those above."""
    found = set()
    for folder in path.parents:
        if (folder / ".clang-tidy").is_file():
            found.add(folder / ".clang-tidy")
        if folder == ROOT:
            break
    return found


def fingerprint(source: Path, salt: bytes) -> str:
    """Return a digest of everything that can change what clang-tidy says of a source."""
    todo, seen = [source], {source}
    while todo:
        new = headers_of(todo.pop()) - seen
        seen |= new
        todo += new
    digest = hashlib.sha256(salt)
    for path in sorted(seen.union(*map(configurations_of, seen))):
        digest.update(str(path).encode() + path.read_bytes())
    return digest.hexdigest()


def run(tidy: str, build: Path, source: Path, deadline: float) -> tuple[Path, str]:
    """Return a source and what clang-tidy found in it; the empty string is a pass."""
    command = [
        tidy,
        "-p",
        str(build),
        "--quiet",
        *(f"--removed-arg={flag}" for flag in DROPPED),
        str(source),
    ]
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        return source, "not reached in time"
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return source, "not finished in time"
    return source, "" if ended.returncode == 0 else ended.stdout + ended.stderr


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--build", type=Path, required=True, help="folder with compile_commands.json"
    )
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1400, help="cap on the whole run")
    chosen = parser.parse_args()
    deadline = time.monotonic() + chosen.seconds
    tidy = str(Path(sys.executable).parent / "clang-tidy")
    version = subprocess.run([tidy, "--version"], capture_output=True, check=True).stdout
    commands = json.loads((chosen.build / "compile_commands.json").read_text())
    sources = sorted({Path(c["file"]).resolve() for c in commands} & set(NATIVE.rglob("*.cc")))
    passed = ROOT / "build" / "tidy"
    passed.mkdir(parents=True, exist_ok=True)
    stamps = {s: passed / fingerprint(s, version) for s in sources}
    todo = [s for s in sources if not stamps[s].exists()]
    failed = 0
    with ThreadPoolExecutor(chosen.jobs) as pool:
        for job in as_completed(pool.submit(run, tidy, chosen.build, s, deadline) for s in todo):
            source, found = job.result()
            if found:
                failed += 1
                print(f"{source.relative_to(ROOT)}:\n{found}", flush=True)
            else:
                stamps[source].touch()
    print(f"tidy: {len(sources)} sources, {len(todo)} looked at, {failed} with findings")
    return int(failed > 0 or not sources)


if __name__ == "__main__":
    sys.exit(main())
