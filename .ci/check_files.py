# SPDX-License-Identifier: Apache-2.0
"""Check every file: licence line, length, forbidden calls, paths of one machine.

Looks at what git tracks or would track; in a folder without git at everything but what was made.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

MAX_LINES = 700
MAX_BYTES = 1 << 20
SOURCES = {".py", ".pyi", ".cc", ".h", ".sh", ".toml", ".cmake"}
SOURCE_NAMES = {"Makefile", "CMakeLists.txt", "run", ".clang-format", ".clang-tidy"}
UNCOUNTED = {".toml"}

# Written so that this file does not match itself.
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX)\b|raise NotImplemented" + r"Error\b")
MACHINE_PATHS = re.compile(r"(?<![\w.])/(work|farm|root)/|(?<![\w.])/tmp/[a-z]+/")
DANGEROUS = {
    re.compile(
        r"^\s*(import|from)\s+(pickle|marshal|shelve|dill|cloudpickle)\b"
    ): "unpickling runs code of the sender",
    re.compile(r"(?<![.\w])(eval|exec)\("): "evaluates text as code",
    re.compile(r"\b(recv|send)_pyobj\b"): "unpickling runs code of the sender",
    re.compile(r"\btorch\.load\((?!.*weights_only=True)"): "unpickling runs code of the sender",
}
NATIVE_MODULE = re.compile(r"^\s*(from|import)\s+hixl_rma(\._core\b|\s+import\s.*\b_core\b)")
NATIVE_IMPORTER = "hixl_rma/_native.py"


def files_of(root: Path) -> list[Path]:
    """Return the files to look at."""
    listed = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0 and (root / ".git").exists():
        paths = [root / name for name in listed.stdout.split("\0") if name]
        return sorted(path for path in paths if path.is_file())
    made = {".venv", "build", "dist", "__pycache__"}
    found = (path for path in root.rglob("*") if not made & set(path.relative_to(root).parts))
    return sorted(path for path in found if path.is_file())


def is_source(path: Path) -> bool:
    return path.suffix in SOURCES or path.name in SOURCE_NAMES


def check_lines(name: str, lines: list[str]) -> Iterator[str]:
    """Yield what is wrong with single lines."""
    in_package = name.startswith("hixl_rma/")
    for number, line in enumerate(lines, 1):
        if UNFINISHED.search(line):
            yield f"{name}:{number}: unfinished: {line.strip()}"
        if MACHINE_PATHS.search(line):
            yield f"{name}:{number}: a path of one machine: {line.strip()}"
        if in_package and name != NATIVE_IMPORTER and NATIVE_MODULE.search(line):
            yield f"{name}:{number}: only {NATIVE_IMPORTER} imports the native module"
        if in_package:
            for pattern, reason in DANGEROUS.items():
                if pattern.search(line):
                    yield f"{name}:{number}: {reason}: {line.strip()}"


def check_file(root: Path, path: Path) -> Iterator[str]:
    """Yield what is wrong with one file."""
    name = path.relative_to(root).as_posix()
    if path.stat().st_size > MAX_BYTES:
        yield f"{name}: larger than {MAX_BYTES >> 20} MiB"
        return
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        return
    if is_source(path):
        if path.suffix not in UNCOUNTED and len(lines) > MAX_LINES:
            yield f"{name}: {len(lines)} lines; split it (at most {MAX_LINES}, aim at 400)"
        if not any("SPDX-License-Identifier: Apache-2.0" in line for line in lines[:3]):
            yield f"{name}: no SPDX licence line at the top"
    yield from check_lines(name, lines)


def main() -> int:
    root = (Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1]).resolve()
    files = files_of(root)
    problems = [problem for path in files for problem in check_file(root, path)]
    print(*problems, sep="\n", end="\n" if problems else "")
    print(f"check_files: {len(files)} files, {len(problems)} problems")
    return int(bool(problems) or not files)


if __name__ == "__main__":
    sys.exit(main())
