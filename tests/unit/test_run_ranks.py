# SPDX-License-Identifier: Apache-2.0
"""The runner of the rank tests believes nothing: each job that must fail is planted once."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.deadline(120)

HEAD = """
import os, time
import pytest
from mpi4py import MPI

rank = MPI.COMM_WORLD.rank

@pytest.mark.mpi(min_size=2)
def test_planted():
    MPI.COMM_WORLD.Barrier()
"""


def run_planted(tmp_path: Path, body: str, ranks: int = 2, timeout: int = 60) -> tuple[int, str]:
    """Run one planted test file on some ranks, with the rules of this project's conftest."""
    (tmp_path / "test_planted.py").write_text(HEAD + body)
    variables = {k: v for k, v in os.environ.items() if not k.startswith("HIXL_RMA_")}
    command = [sys.executable, ROOT / "tests" / "support" / "run_ranks.py"]
    command += ["--ranks", str(ranks), "--timeout", str(timeout), "--records", tmp_path / "records"]
    command += ["--", "-c", ROOT / "pyproject.toml", "-p", "conftest", tmp_path / "test_planted.py"]
    ended = subprocess.run(
        [str(part) for part in command],
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    return ended.returncode, ended.stdout


def is_running(pid: int) -> bool:
    """Tell whether a process runs; one that ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def test_a_job_that_passes_on_all_ranks_passes(tmp_path: Path) -> None:
    status, said = run_planted(tmp_path, "    assert MPI.COMM_WORLD.size == 2\n")
    assert status == 0, said
    assert "n2: 1 passed, 0 failed, 0 skipped" in said


def test_a_failure_on_one_rank_fails_the_test_on_all(tmp_path: Path) -> None:
    status, said = run_planted(tmp_path, "    assert rank == 0, 'rank one says no'\n")
    assert status == 1
    assert "failed on another rank" in said
    assert "rank one says no" in said
    assert "rank 0: pytest ended with status 1" in said


def test_a_failure_while_others_wait_for_that_rank_is_reported_and_ends_the_job(
    tmp_path: Path,
) -> None:
    body = "    assert rank == 0, 'rank one says no'\n    MPI.COMM_WORLD.Barrier()\n"
    status, said = run_planted(tmp_path, body)
    assert status == 1
    assert "rank one says no" in said
    assert "ending the job" in said


def test_a_hanging_rank_dumps_its_threads_and_ends_the_job(tmp_path: Path) -> None:
    body = "    while rank == 1:\n        time.sleep(1)\ntest_planted = pytest.mark.deadline(3)("
    status, said = run_planted(tmp_path, body + "test_planted)\n")
    assert status == 1
    assert "Timeout (0:00:03)!" in said
    assert "in test_planted" in said


def test_a_job_that_outlives_its_deadline_is_ended_with_all_its_processes(tmp_path: Path) -> None:
    status, said = run_planted(tmp_path, "    time.sleep(1000)\n", timeout=6)
    assert status == 1
    assert "not finished after 6 s; ended" in said
    pids = [int(p.read_text()) for p in tmp_path.glob("records/*/rank*.pid")]
    assert len(pids) == 2
    end = time.monotonic() + 10
    while any(map(is_running, pids)):
        assert time.monotonic() < end, pids
        time.sleep(0.05)


def test_a_rank_that_exits_by_itself_fails_the_job(tmp_path: Path) -> None:
    status, said = run_planted(tmp_path, "    if rank == 1:\n        os._exit(0)\n", timeout=15)
    assert status == 1
    assert "rank 1 did not end by itself" in said


def test_a_skip_that_nobody_expects_fails_the_job(tmp_path: Path) -> None:
    status, said = run_planted(tmp_path, "    pytest.skip('felt like it')\n")
    assert status == 1
    assert "not executed: " in said
    assert "felt like it" in said


def test_a_rank_count_that_runs_no_test_fails_the_job(tmp_path: Path) -> None:
    status, said = run_planted(tmp_path, "    pass\n", ranks=1)
    assert status == 1
    assert "no test was executed" in said


def test_what_one_rank_leaks_fails_the_test(tmp_path: Path) -> None:
    body = "    if rank == 1:\n        globals()['kept'] = os.open('/dev/null', os.O_RDONLY)\n"
    mark = "test_planted = pytest.mark.leaks(test_planted)\n"
    status, said = run_planted(tmp_path, body + mark)
    assert status == 1
    assert "left behind: file descriptor" in said
