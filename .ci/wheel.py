# SPDX-License-Identifier: Apache-2.0
"""Build the sdist and a wheel for each Python found here, and use each where nothing can compile.

The sdist is unpacked, and everything else happens with what came out of it, outside the checkout.
The module uses vectorcall and pybind11, for which the limited API of Python does not suffice, so
each version from 3.10 to 3.14 has a wheel of its own. auditwheel names the oldest glibc that it
runs on. Each repaired wheel is installed in a fresh environment whose PATH has no compiler and no
CMake: first with numpy alone, then with the test tools and MPICH for the unit tests and a part of
the suites for ranks, on one rank. Meanwhile the next wheel is built. Versions of Python that this
machine lacks are listed, and noted for the skip ledger, as not run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
# What tests the tools of the repository rather than the package; and what kills and stops ranks:
# it takes longest, and says no more of one interpreter than of another.
LEFT_OUT = (
    "tests/unit/test_checks.py",
    "tests/unit/test_run_ranks.py",
    "tests/unit/test_peer_*.py",
)
# What moves data in every kind of window; the rest takes more time than it tells here.
ONE_RANK = ("put_get", "accumulate", "fence", "notify_operations")
# Programs that build, as patterns of names: gcc-12, x86_64-linux-gnu-g++, ld.gold...
BUILDERS = (
    *("c++*", "c[89]9*", "cc", "*gcc*", "*g++*", "*cpp*", "*clang*", "rustc"),
    *("as", "*-as", "ld", "ld.*", "*-ld*", "lld*", "make", "gmake", "cmake*", "ninja*", "meson"),
)
PROBE = """
import ensurepip, json, os, platform, sys, sysconfig, venv
print(json.dumps({
    "version": platform.python_version(),
    "minor": "%d.%d" % sys.version_info[:2],
    "fit": platform.python_implementation() == "CPython"
        and not sysconfig.get_config_var("Py_GIL_DISABLED")
        and os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")),
}))
"""


def candidates(version: str, first: str) -> Iterator[Path]:
    """Yield where an interpreter of a version may be: named to make, in PATH, in known places."""
    named = shutil.which(first)
    if named is not None:
        yield Path(named)
    for folder in os.get_exec_path():
        yield Path(folder) / f"python{version}"
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or Path.home() / ".local/share/uv/python")
    digits = version.replace(".", "")
    for place, pattern in (
        (pyenv / "versions", f"{version}.*"),
        (uv, f"cpython-{version}.*"),
        (Path("/opt/python"), f"cp{digits}-cp{digits}"),  # of the manylinux images
    ):
        for home in sorted(place.glob(pattern)):
            yield home / "bin" / f"python{version}"


def find(version: str, first: str) -> tuple[Path, str] | str:
    """Return an interpreter with headers and venv, and its full version; or why there is none."""
    reason = "no such interpreter on this machine"
    for path in candidates(version, first):
        if not os.access(path, os.X_OK):
            continue
        asked = subprocess.run([path, "-c", PROBE], capture_output=True, text=True, check=False)
        if asked.returncode != 0:  # a wrapper without a version behind it, or no venv module
            continue
        found = json.loads(asked.stdout)
        if found["minor"] != version:
            continue
        if found["fit"]:
            return path, found["version"]
        reason = "an interpreter without headers, without GIL or of another kind"
    return reason


class Failed(Exception):
    """What ends the turn of one interpreter."""


def fail(reason: str) -> NoReturn:
    raise Failed(reason)


def run(command: Sequence[object], **options: object) -> None:
    """Run a command; a failure ends this interpreter's turn."""
    arguments = [str(part) for part in command]
    ended = subprocess.run(arguments, stdin=subprocess.DEVNULL, text=True, check=False, **options)  # type: ignore[call-overload]
    if ended.returncode != 0:
        if ended.stdout:
            print(ended.stdout, flush=True)
        fail(f"status {ended.returncode} of {' '.join(arguments)[:200]}")


def quiet(command: Sequence[object], **options: object) -> None:
    """Run a command whose output matters only when it fails."""
    run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)


def pip(*arguments: object) -> list[object]:
    return [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]


def make_sdist(dist: Path) -> Path:
    """Build the sdist; it holds what git knows and the metadata, no less and nothing made."""
    quiet([sys.executable, "-m", "build", "--sdist", "--no-isolation", "-o", dist, ROOT])
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()} - {"PKG-INFO"}
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=False,
    )
    known = {name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()}
    # Built from an unpacked sdist, there is no git to ask.
    if listed.returncode == 0 and (ROOT / ".git").exists() and held != known:
        fail(f"the sdist differs from what git knows: {sorted(held ^ known)}")
    if "LICENSE" not in held:
        fail("the sdist holds no licence")
    return sdist


def tools_but_compilers(folder: Path) -> Path:
    """Fill a folder with links to the programs of PATH, less those that build; return it."""
    folder.mkdir()
    for place in os.get_exec_path():
        for program in Path(place).glob("*"):
            link = folder / program.name
            builds = any(fnmatchcase(program.name, pattern) for pattern in BUILDERS)
            if not builds and not link.is_symlink() and os.access(program, os.X_OK):
                link.symlink_to(program.absolute())
    return folder


def look_into(wheel: Path) -> None:
    """Fail when a wheel holds other things than the package, one module and the licence."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    modules = [name for name in names if ".so" in name]
    strange = [n for n in names if not n.startswith(("hixl_rma/", "hixl_rma-"))]
    if strange or len(modules) != 1:
        fail(f"{wheel.name} holds {strange or modules}")
    if not any(name.endswith("/licenses/LICENSE") for name in names):
        fail(f"{wheel.name} holds no licence")


class Wheels:
    """Wheels for several interpreters from one unpacked sdist."""

    def __init__(self, source: Path, work: Path, dist: Path) -> None:
        self.source, self.work, self.dist = source, work, dist
        tools = [str(Path(sys.executable).parent), os.environ["PATH"]]
        self.environment = {**os.environ, "PATH": os.pathsep.join(tools)}

    def build(self, python: Path, version: str) -> Path:
        """Build in isolation and let auditwheel judge the result."""
        objects = self.work / "objects"
        # What does not see Python.h is compiled once for all: CMake looks at everything anew, the
        # objects stay, and ninja makes again those whose command line differs.
        for memory in ("CMakeCache.txt", ".skbuild-info.json"):
            (objects / memory).unlink(missing_ok=True)
        raw, fixed = self.work / f"raw-{version}", self.work / f"fixed-{version}"
        command = pip("--python", python, "wheel", "--no-deps", "-C", f"build-dir={objects}")
        options: dict[str, object] = {"env": self.environment, "cwd": self.work}
        quiet([*command, "-w", raw, self.source], **options)
        (wheel,) = raw.glob("*.whl")
        quiet([sys.executable, "-m", "auditwheel", "repair", "-w", fixed, wheel], **options)
        (wheel,) = fixed.glob("*.whl")
        look_into(wheel)
        return Path(shutil.move(wheel, self.dist / wheel.name))


class Bare:
    """A fresh environment of one interpreter where nothing can compile."""

    def __init__(self, python: Path, work: Path, tools: Path) -> None:
        self.work = work
        self.bin = work / "venv" / "bin"
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith("PYTHON")
        }
        self.environment["PATH"] = f"{self.bin}{os.pathsep}{tools}"
        self.environment["HIXL_RMA_TEST_SLOW"] = "3"  # a build goes on meanwhile
        quiet([python, "-m", "venv", "--without-pip", work / "venv"])
        present = [
            name
            for name in ("cc", "c++", "gcc", "g++", "clang", "cmake", "ninja", "make", "ld")
            if shutil.which(name, path=self.environment["PATH"])
        ]
        if present:
            fail(f"the environment that should have no compiler has {present}")

    def install(self, *what: object) -> None:
        target = pip("--python", self.bin / "python", "install", "-q", "--only-binary", ":all:")
        quiet([*target, *what], env=self.environment, cwd=self.work)

    def use_with_numpy_alone(self, wheel: Path) -> None:
        """Make a window, ask for the report."""
        self.install(wheel)
        options: dict[str, object] = {"env": self.environment, "cwd": self.work}
        python = self.bin / "python"
        run([python, "-I", "-W", "error", ROOT / ".ci" / "wheel_smoke.py"], **options)
        quiet([python, "-m", "hixl_rma", "info"], **options)
        quiet([self.bin / "hixl-rma", "info"], **options)

    def test(self, wheel: Path, source: Path) -> None:
        """Run the sdist's tests for one process in a folder that holds no package."""
        self.install("--group", f"{source / 'pyproject.toml'}:test", f"{wheel}[mpich]")
        elsewhere = self.work / "elsewhere"
        elsewhere.mkdir()
        shutil.copytree(source / "tests", elsewhere / "tests")
        shutil.copy(source / "pyproject.toml", elsewhere)
        pytest = [self.bin / "python", "-m", "pytest", "-p", "no:cacheprovider", "-q", "-rfE"]
        ignored = [f"--ignore-glob={name}" for name in LEFT_OUT]
        one_rank = [f"tests/mpi/test_{name}.py" for name in ONE_RANK]
        options: dict[str, object] = {"env": self.environment, "cwd": elsewhere}
        run([*pytest, "--no-header", *ignored, "tests/unit"], **options)
        run([*pytest, "--with-mpi", "-m", "not slow", *one_rank], **options)


def note_as_not_run(version: str, reason: str) -> None:
    """Write a version into the skip ledger."""
    folder = os.environ.get("HIXL_RMA_TEST_SKIP_LEDGER")
    lane = os.environ.get("HIXL_RMA_TEST_LANE", "by hand")
    if folder:
        skip = {"test": f"Python {version}", "reason": reason, "lane": lane}
        with (Path(folder) / f"{lane}-rank0-{os.getpid()}.jsonl").open("a") as file:
            file.write(json.dumps(skip) + "\n")


def try_out(built: Future[Path], python: Path, wheels: Wheels, tools: Path) -> str:
    """Use one interpreter's wheel once it is built; return what became of it."""
    with tempfile.TemporaryDirectory(prefix="hixl-wheel-") as work:
        try:
            wheel = built.result()
            bare = Bare(python, Path(work), tools)
            bare.use_with_numpy_alone(wheel)
            bare.test(wheel, wheels.source)
        except Failed as error:
            return f"FAILED: {error}"
    return f"passed  {wheel.name}"


def try_all(found: dict[str, tuple[Path, str]], sdist: Path, dist: Path) -> dict[str, str]:
    """Build and try a wheel for each interpreter; return the outcomes by version."""
    outcomes = {}
    with tempfile.TemporaryDirectory(prefix="hixl-sdist-") as folder, ThreadPoolExecutor(1) as pool:
        work = Path(folder)
        unpacked = work / "sdist"
        unpacked.mkdir()
        quiet(["tar", "-xzf", sdist, "-C", unpacked])
        (source,) = unpacked.iterdir()
        wheels = Wheels(source, work, dist)
        tools = tools_but_compilers(work / "tools")
        builds = {
            version: pool.submit(wheels.build, python, version)
            for version, (python, _) in found.items()
        }
        for version, (python, full) in found.items():
            outcomes[version] = try_out(builds[version], python, wheels, tools)
            print(f"---- Python {full}: {outcomes[version]}", flush=True)
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", default="python3", help="an interpreter to take before others")
    parser.add_argument("--dist", type=Path, default=ROOT / "build" / "dist")
    chosen = parser.parse_args()
    shutil.rmtree(chosen.dist, ignore_errors=True)
    chosen.dist.mkdir(parents=True)
    dist = chosen.dist.resolve()
    places = {version: find(version, chosen.python) for version in VERSIONS}
    found = {version: place for version, place in places.items() if not isinstance(place, str)}
    try:
        sdist = make_sdist(dist)
        outcomes = try_all(found, sdist, dist)
    except Failed as error:
        print(f"FAILED: {error}")
        return 1
    print(f"\n{sdist.name} and wheels in {os.path.relpath(dist)}")
    for version, place in places.items():
        if isinstance(place, str):
            note_as_not_run(version, place)
            outcomes[version] = f"NOT RUN: {place}"
        print(f"Python {version:<5} {outcomes[version]}")
    passed = [outcome for outcome in outcomes.values() if outcome.startswith("passed")]
    return int(len(passed) != len(found) or not passed)


if __name__ == "__main__":
    sys.exit(main())
