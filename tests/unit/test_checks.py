# SPDX-License-Identifier: Apache-2.0
"""The project's own checks see what they are there for: each is shown a planted violation."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from support.ledger import Expectation, Skip, read_expectations, unexpected
from support.machine import CONDITIONS

ROOT = Path(__file__).resolve().parents[2]


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def includes_found(tmp_path: Path, file: str, line: str) -> list[str]:
    path = tmp_path / "native" / file
    path.parent.mkdir(parents=True)
    path.write_text(f"// SPDX-License-Identifier: Apache-2.0\n{line}\n")
    return list(load("check_includes").check(tmp_path / "native"))


@pytest.mark.parametrize(
    ("file", "line", "words"),
    [
        ("src/transport/cma/a.cc", '#include "transport/shm/b.h"', "no other transport"),
        ("src/transport/cma/a.cc", '#include "engine/b.h"', "transport lies below engine"),
        ("src/transport/cma/a.cc", '#include "transport/registry/b.h"', "lies below registry"),
        (
            "src/transport/common/a.cc",
            '#include "transport/shm/b.h"',
            "common lies below transport",
        ),
        ("src/engine/a.cc", '#include "transport/shm/b.h"', "through the registry only"),
        ("src/engine/a.h", '#include "window/b.h"', "engine lies below window"),
        ("src/base/a.h", '#include "memory/b.h"', "base lies below memory"),
        ("src/window/a.cc", "#include <pybind11/pybind11.h>", "belongs to bindings"),
        ("src/window/a.cc", "#include <Python.h>", "belongs to bindings"),
        ("bindings/a.cc", "#include <mpi.h>", "belongs to nobody"),
        ("src/transport/shm/a.cc", "#include <infiniband/verbs.h>", "belongs to transport/verbs"),
        ("src/memory/host/a.cc", "#include <acl/acl.h>", "belongs to memory/ascend"),
        ("include/hixl_rma/a.h", '#include "base/b.h"', "include lies below base"),
        ("src/engine/a.cc", '#include "../window/b.h"', "write the path"),
        ("src/engine/a.cc", '#include "elsewhere/b.h"', "in no layer"),
    ],
)
def test_a_wrong_include_is_found(tmp_path: Path, file: str, line: str, words: str) -> None:
    found = includes_found(tmp_path, file, line)
    assert len(found) == 1
    assert words in found[0]


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("src/transport/cma/a.cc", '#include "memory/host/b.h"'),
        ("src/transport/cma/a.cc", '#include "transport/common/b.h"'),
        ("src/transport/cma/a.cc", '#include "transport/cma/b.h"'),
        ("src/transport/registry/a.cc", '#include "transport/shm/b.h"'),
        ("src/engine/a.cc", '#include "transport/registry/b.h"'),
        ("src/engine/a.cc", '#include "hixl_rma/status.h"'),
        ("src/engine/a.cc", '#include "beside.h"'),
        ("src/engine/a.cc", "#include <sys/uio.h>"),
        ("bindings/a.cc", "#include <pybind11/pybind11.h>"),
        ("tests/conformance/a.cc", '#include "transport/shm/b.h"'),
        ("tests/conformance/a.cc", "#include <gtest/gtest.h>"),
    ],
)
def test_a_right_include_passes(tmp_path: Path, file: str, line: str) -> None:
    assert includes_found(tmp_path, file, line) == []


LICENCE = "# SPDX-License-Identifier: Apache-2.0\n"


# The texts are put together here, so that this file holds none of them itself.
@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("hixl_rma/a.py", "x = 1\n", "no SPDX"),
        ("native/src/base/a.cc", "int x;\n", "no SPDX"),
        ("hixl_rma/a.py", LICENCE + "x = 1\n" * 700, "701 lines"),
        ("hixl_rma/a.py", LICENCE + "import pick" + "le\n", "runs code of the sender"),
        ("hixl_rma/a.py", LICENCE + "from marsh" + "al import loads\n", "runs code of the sender"),
        ("hixl_rma/a.py", LICENCE + "y = ev" + "al(x)\n", "evaluates text"),
        ("hixl_rma/a.py", LICENCE + "socket.recv_py" + "obj()\n", "runs code of the sender"),
        ("hixl_rma/a.py", LICENCE + "w = torch.lo" + "ad(p)\n", "runs code of the sender"),
        ("hixl_rma/a.py", LICENCE + "from hixl_rma._core import x\n", "only hixl_rma/_native.py"),
        ("hixl_rma/a.py", LICENCE + "from hixl_rma import _core\n", "only hixl_rma/_native.py"),
        ("README.md", "see /wo" + "rk/main\n", "a path of one machine"),
        ("tests/a.py", LICENCE + "p = '/roo" + "t/x'\n", "a path of one machine"),
        ("tests/a.py", LICENCE + "p = '/tm" + "p/mine/x'\n", "a path of one machine"),
        (
            "native/src/base/a.h",
            "// SPDX-License-Identifier: Apache-2.0\n// TO" + "DO\n",
            "unfinished",
        ),
        ("hixl_rma/a.py", LICENCE + "raise NotImplemented" + "Error\n", "unfinished"),
        ("docs/a.txt", "x" * ((1 << 20) + 1), "larger than 1 MiB"),
    ],
)
def test_a_wrong_file_is_found(tmp_path: Path, file: str, text: str, words: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    found = list(load("check_files").check_file(tmp_path, path))
    assert len(found) == 1
    assert words in found[0]


def test_harmless_lines_pass(tmp_path: Path) -> None:
    path = tmp_path / "hixl_rma" / "a.py"
    path.parent.mkdir()
    path.write_text(LICENCE + "model.ev" + "al()\ny = retrieval(x)\np = Path('/dev/shm/x')\n")
    assert list(load("check_files").check_file(tmp_path, path)) == []


def test_the_file_check_ends_red_and_names_the_place(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    command = [sys.executable, ROOT / ".ci" / "check_files.py", tmp_path]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "a.py: no SPDX licence line" in ended.stdout


def test_an_unexpected_skip_ends_red(tmp_path: Path) -> None:
    skip = {"test": "tests/unit/test_a.py::test_b", "reason": "felt like it", "lane": "unit"}
    (tmp_path / "unit-rank0-1.jsonl").write_text(json.dumps(skip) + "\n")
    command = [sys.executable, ROOT / ".ci" / "check_skips.py", tmp_path]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "NOT expected: unit: tests/unit/test_a.py::test_b: felt like it" in ended.stdout


def test_an_unexpected_native_skip_ends_red(tmp_path: Path) -> None:
    (tmp_path / "native").mkdir()
    (tmp_path / "native" / "suite.xml").write_text(
        '<testsuites><testsuite name="Cma"><testcase name="Puts" classname="Cma">'
        '<skipped message="a.cc:3&#x0A;Skipped&#x0A;no ptrace"/></testcase>'
        "</testsuite></testsuites>"
    )
    command = [sys.executable, ROOT / ".ci" / "check_skips.py", tmp_path]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "NOT expected: native: Cma.Puts: no ptrace" in ended.stdout


def test_an_expectation_counts_only_for_its_lanes() -> None:
    allowed = Expectation("tests/*", "no torch", ("unit",), "why")
    here, there = Skip("tests/a", "no torch", "unit"), Skip("tests/a", "no torch", "mpich-n2")
    assert unexpected([here, there], [allowed]) == [there]


def test_an_expectation_ends_where_its_variable_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = Expectation("tests/*", "no torch", ("unit",), "why", unless="HIXL_TEST_FLAG")
    skip = Skip("tests/a", "no torch", "unit")
    monkeypatch.delenv("HIXL_TEST_FLAG", raising=False)
    assert unexpected([skip], [allowed]) == []
    monkeypatch.setenv("HIXL_TEST_FLAG", "1")
    assert unexpected([skip], [allowed]) == [skip]


def test_an_expectation_counts_only_where_its_condition_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    holds = [True]
    monkeypatch.setattr("support.ledger.CONDITIONS", {"it rains": lambda: holds[0]})
    allowed = Expectation("*", "wet", ("native",), "why", where="it rains")
    skip = Skip("Cma.Puts", "wet", "native")
    assert unexpected([skip], [allowed]) == []
    holds[0] = False
    assert unexpected([skip], [allowed]) == [skip]


def test_an_expectation_for_a_condition_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    entry = '[[skip]]\ntest = "*"\nreason = "*"\nlanes = ["*"]\nwhy = "w"\nwhere = "elsewhere"\n'
    (tmp_path / "skips.toml").write_text(entry)
    with pytest.raises(KeyError, match="elsewhere"):
        read_expectations(tmp_path / "skips.toml")


NATIVE_SKIPS = [
    ("Shm.a_stranger", "becoming another user takes root", {"another user is out of reach"}),
    (
        "Cma.a_peer_that_may_not_be_traced_is_unavailable_with_the_reason",
        "root that may trace everybody",
        {"root without its powers"},
    ),
    (
        "Transport/DataClaims.puts/cma_threads",
        "cma: cross-process copy was refused (see ptrace_scope)",
        {"cross-process copies are refused"},
    ),
    ("Transport/DataClaims.puts/shm_threads", "shm: memfd_create failed", set()),
    ("Cma.puts", "cma: a reason that nobody has seen", set()),
]


@pytest.mark.parametrize("lane", ["native", "native-asan", "native-tsan"])
@pytest.mark.parametrize(("test", "reason", "wanted"), NATIVE_SKIPS)
def test_a_native_skip_is_expected_only_on_a_machine_that_forces_it(
    monkeypatch: pytest.MonkeyPatch, lane: str, test: str, reason: str, wanted: set[str]
) -> None:
    entries = read_expectations(ROOT / ".ci" / "expected_skips.toml")
    skip = Skip(test, reason, lane)
    names = sorted(set(CONDITIONS) - {""})
    for name in names:
        here = {each: (lambda holds=each in ("", name): holds) for each in CONDITIONS}
        monkeypatch.setattr("support.ledger.CONDITIONS", here)
        assert (unexpected([skip], entries) == []) == (name in wanted), name


def test_every_expected_skip_says_why() -> None:
    entries = read_expectations(ROOT / ".ci" / "expected_skips.toml")
    assert entries
    assert all(len(entry.why.split()) >= 5 for entry in entries)


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        ("native/tests/unit/a_test.cc", True),
        ("native/tests/support/help.h", True),
        ("native/src/base/b.h", True),
        ("native/src/base/b.cc", False),
        ("native/tests/.clang-tidy", True),
        ("native/src/base/.clang-tidy", True),  # of an included header
        ("native/.clang-tidy", True),
        (".clang-tidy", True),
        ("native/src/window/.clang-tidy", False),
    ],
)
def test_clang_tidy_looks_again_when_what_applies_to_a_source_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, changes: bool
) -> None:
    native = tmp_path / "native"
    texts = {
        "native/.clang-tidy": "Checks: '*'\n",
        "native/tests/.clang-tidy": "InheritParentConfig: true\n",
        "native/tests/unit/a_test.cc": '#include "support/help.h"\n',
        "native/tests/support/help.h": '#include "base/b.h"\n',
        "native/src/base/b.h": "int b();\n",
        "native/src/base/b.cc": '#include "base/b.h"\n',
        "native/src/window/w.cc": "",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    def fingerprint() -> str:
        tidy = load("tidy")
        monkeypatch.setattr(tidy, "ROOT", tmp_path)
        monkeypatch.setattr(tidy, "ROOTS", [native / "src", native / "tests"])
        found: str = tidy.fingerprint(native / "tests/unit/a_test.cc", b"version")
        return found

    before = fingerprint()
    assert fingerprint() == before
    with (tmp_path / file).open("a") as opened:
        opened.write("# changed\n")
    assert (fingerprint() != before) == changes


def preflight(tmp_path: Path, tools: dict[str, str], compiler: str = "c++") -> tuple[int, str]:
    """Run the check with a PATH that holds only the tools given: name -> shell script."""
    for name, script in tools.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    ended = subprocess.run(
        ["/bin/sh", ROOT / ".ci" / "preflight.sh", "python3", compiler],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.returncode, ended.stderr


PYTHON_WITHOUT = (
    'case "$*" in *{word}*) exit 1 ;; *Python.h*) ;; *get_path*) echo {include} ;; esac'
)


@pytest.mark.parametrize(
    ("python", "compiler", "words"),
    [
        (None, "cat >&2; exit 0", "apt-get install python3 "),
        ("version_info", "exit 0", "'python3' is older"),
        ("ensurepip", "exit 0", "apt-get install python3-venv "),
        ("nothing", None, "apt-get install g++ "),
        ("nothing", "exit 1", "does not take -std=c++20"),
    ],
)
def test_a_missing_tool_is_named_with_its_packages(
    tmp_path: Path, python: str | None, compiler: str | None, words: str
) -> None:
    (tmp_path / "Python.h").touch()
    tools = {"c++": compiler} if compiler is not None else {}
    if python is not None:
        tools["python3"] = PYTHON_WITHOUT.format(word=python, include=tmp_path)
    status, said = preflight(tmp_path, tools)
    assert status != 0
    assert len(said.splitlines()) == 1, said
    assert words in said
    assert "dnf install" in said


def test_missing_headers_of_python_are_named_with_their_packages(tmp_path: Path) -> None:
    python = PYTHON_WITHOUT.format(word="nothing", include=tmp_path / "absent")
    status, said = preflight(tmp_path, {"python3": python, "c++": "exit 0"})
    assert status != 0
    assert "apt-get install python3-dev " in said
    assert "dnf install python3-devel" in said


def test_make_says_what_is_missing_before_anything_else(tmp_path: Path) -> None:
    """The first thing that any target does is the check, and nothing is made when it fails."""
    for name in ("Makefile", ".ci", "pyproject.toml", "native"):
        (tmp_path / name).symlink_to(ROOT / name)
    ended = subprocess.run(
        ["make", "demo", "PYTHON=python-that-is-not-here"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode != 0
    assert ended.stderr.startswith("hixl_rma needs Python 3.10 or newer")
    assert not (tmp_path / ".venv").exists()


def interpreter(path: Path, version: str, *, fit: bool = True) -> None:
    """Write what answers as an interpreter does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    minor = version.rpartition(".")[0]
    answer = json.dumps({"version": version, "minor": minor, "fit": fit})
    path.write_text(f"#!/bin/sh\necho '{answer}'\n")
    path.chmod(0o755)


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], object]:
    """Look for a version where PATH and pyenv are folders of the test: found(version)."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "uv"))
    wheel = load("wheel")
    return lambda version: wheel.find(version, "python3")


def test_the_interpreter_that_make_was_given_is_taken_before_others(
    tmp_path: Path, found: Callable[[str], object]
) -> None:
    interpreter(tmp_path / "bin/python3", "3.12.5")
    interpreter(tmp_path / "bin/python3.12", "3.12.1")
    interpreter(tmp_path / "bin/python3.13", "3.13.0")
    assert found("3.12") == (tmp_path / "bin/python3", "3.12.5")
    assert found("3.13") == (tmp_path / "bin/python3.13", "3.13.0")


def test_a_wrapper_without_an_interpreter_behind_it_gives_way_to_the_next_place(
    tmp_path: Path, found: Callable[[str], object]
) -> None:
    interpreter(tmp_path / "bin/python3.10", "3.10.1")
    (tmp_path / "bin/python3.10").write_text("#!/bin/sh\nexit 127\n")
    interpreter(tmp_path / "pyenv/versions/3.10.13/bin/python3.10", "3.10.13")
    interpreter(tmp_path / "uv/cpython-3.12.9-linux/bin/python3.12", "3.12.9")
    assert found("3.10") == (tmp_path / "pyenv/versions/3.10.13/bin/python3.10", "3.10.13")
    assert found("3.12") == (tmp_path / "uv/cpython-3.12.9-linux/bin/python3.12", "3.12.9")


def test_a_version_that_cannot_be_tried_is_told_with_the_reason(
    tmp_path: Path, found: Callable[[str], object]
) -> None:
    interpreter(tmp_path / "bin/python3.11", "3.11.4", fit=False)
    assert "without headers" in str(found("3.11"))
    assert found("3.14") == "no such interpreter on this machine"
