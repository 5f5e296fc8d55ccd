# SPDX-License-Identifier: Apache-2.0
"""Where the compiled module is missing or broken, the package says so and what mends it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import hixl_rma
from hixl_rma import _broken, _native

PACKAGE = Path(hixl_rma.__file__).parent
MODULE = Path(_native.location()).name


def renamed(before, after):
    """Return what writes the module with another name for one of its symbols."""

    def spoil(folder):
        content = (PACKAGE / MODULE).read_bytes()
        assert before in content
        (folder / MODULE).write_bytes(content.replace(before, after))

    return spoil


CASES = {
    "missing": (lambda folder: None, f"has no {MODULE}"),
    "of another Python": (
        lambda folder: (folder / "_core.cpython-39-elsewhere.so").touch(),
        "has _core.cpython-39-elsewhere.so, but this Python takes",
    ),
    "garbage": (lambda folder: (folder / MODULE).write_bytes(b"garbage" * 99), "invalid ELF"),
    "truncated": (
        lambda folder: (folder / MODULE).write_bytes((PACKAGE / MODULE).read_bytes()[:50]),
        "file too short",
    ),
    "of another library": (renamed(b"PyErr_SetString", b"PyErr_SetStrinx"), "PyErr_SetStrinx"),
    "another module": (renamed(b"PyInit__core", b"PyInit__cora"), "PyInit__core"),
}


@pytest.fixture
def spoilt(tmp_path):
    """Copy the package with a module that does not load: spoilt(case) -> (environment, reason)."""

    def make(case="missing"):
        copy = tmp_path / "hixl_rma"
        shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        spoil, reason = CASES[case]
        spoil(copy)
        packages = [path for path in sys.path if path.endswith("-packages")]
        return dict(os.environ, PYTHONPATH=os.pathsep.join([str(tmp_path), *packages])), reason

    return make


def python(environ, *arguments):
    # Without `site`: an editable installation would lead to the real package.
    return subprocess.run(
        [sys.executable, "-S", *arguments],
        env=environ,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize("case", CASES)
def test_the_report_is_made_with_the_reason_and_the_line_that_mends_it(spoilt, case):
    environ, reason = spoilt(case)
    ended = python(environ, "-m", "hixl_rma", "info")
    assert ended.stderr == ""
    assert ended.returncode == 1
    report = " ".join(ended.stdout.split())
    assert "native module no does not load: " in report
    assert reason in report
    assert f"-> {_broken.MEND}" in ended.stdout
    for name in ("numpy", "mpi4py", "comm=None", "processors", "/dev/shm", "ptrace scope"):
        assert f"\n  {name} " in ended.stdout


def test_programs_read_the_same_report(spoilt):
    environ, reason = spoilt()
    ended = python(environ, "-m", "hixl_rma", "info", "--json")
    assert (ended.returncode, ended.stderr) == (1, "")
    report = json.loads(ended.stdout)
    assert report["usable"] is False
    module = report["hixl_rma"]["native module"]
    assert module["state"] == "no"
    assert reason in module["text"]
    assert module["mend"] == _broken.MEND
    assert {report["transports"][name]["state"] for name in ("self", "shm", "cma")} == {"no"}
    assert report["memory kinds"]["host"]["state"] == "no"


def test_the_rest_of_the_command_works_without_the_module(spoilt):
    environ, _ = spoilt()
    ended = python(environ, "-m", "hixl_rma", "--version")
    assert (ended.returncode, ended.stdout) == (0, f"hixl-rma {hixl_rma.__version__}\n")
    ended = python(environ, "-m", "hixl_rma", "info", "--env")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "HIXL_RMA_TIMEOUT" in ended.stdout
    ended = python(environ, "-m", "hixl_rma")
    assert ended.returncode == 2
    assert ended.stderr.startswith("usage: hixl-rma")


def test_the_script_reports_as_the_module_does(spoilt, tmp_path):
    environ, reason = spoilt()
    script = tmp_path / "hixl-rma"
    script.write_text(
        "import sys\nfrom hixl_rma.__main__ import main\nsys.exit(main(['info', '--json']))\n"
    )
    ended = python(environ, str(script))
    assert (ended.returncode, ended.stderr) == (1, "")
    assert reason in json.loads(ended.stdout)["hixl_rma"]["native module"]["text"]


@pytest.mark.parametrize("case", CASES)
def test_an_import_is_an_error_with_the_reason_and_the_line_that_mends_it(spoilt, case):
    environ, reason = spoilt(case)
    ended = python(environ, "-c", "import hixl_rma")
    assert ended.returncode == 1
    assert "does not load" in ended.stderr
    assert reason in ended.stderr
    assert ended.stderr.endswith(f"\nTo mend it: {_broken.MEND}\n")


def test_a_module_that_loads_is_named_with_its_file():
    ended = subprocess.run(
        [sys.executable, "-m", "hixl_rma", "info", "--json"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    module = json.loads(ended.stdout)["hixl_rma"]["native module"]
    assert (module["state"], module["text"]) == ("yes", _native.location())
