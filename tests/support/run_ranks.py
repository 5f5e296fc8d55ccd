# SPDX-License-Identifier: Apache-2.0
"""Start pytest under mpirun for each number of ranks, and believe nothing that was not executed.

    .venv/openmpi/bin/python tests/support/run_ranks.py --ranks 1 2 3 4 -- tests/mpi -k fence

pytest-mpi skips what needs more ranks than there are and never starts any; so this program starts
them, and a job fails when any rank's exit status is not zero, when MPI shows fewer ranks than were
started, when a rank executed no test, when ranks executed different tests, and when a test that
could have run on this many ranks was skipped without being expected in ``.ci/expected_skips.toml``.
A job that outlives its deadline is ended and reported.

Everything a job writes lies in ``build/ranks/<MPI>-n<ranks>``: results and output of each rank,
junit.xml of rank 0.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Run as a program, this file is not found through pytest's `pythonpath`.
sys.path.insert(0, str(ROOT / "tests"))

from support.launcher import Launcher, end_session  # noqa: E402
from support.ledger import Skip, read_expectations, reason_of, unexpected  # noqa: E402

RECORDS_VARIABLE = "HIXL_RMA_TEST_RANK_RECORDS"
EXPECTED_SKIPS = ROOT / ".ci" / "expected_skips.toml"


@dataclass
class Verdict:
    """What is known of one job when it has ended."""

    name: str
    seconds: float = 0.0
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        counts = f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"
        return f"{self.name}: {counts} in {self.seconds:.1f} s"


def rank_from_environment() -> int:
    """Return this process's rank as its launcher gave it, before MPI starts."""
    for variable in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"):
        if variable in os.environ:
            return int(os.environ[variable])
    sys.exit("run_ranks: started as a rank, but no launcher variable tells which")


# -------------------------------------------------------------------------------- inside each rank


class Recorder:
    """A pytest plug-in that counts what this rank collected, executed and skipped."""

    def __init__(self) -> None:
        self.eligible: list[str] = []
        self.executed: list[str] = []
        self.failed: set[str] = set()
        self.skipped: dict[str, str] = {}

    def pytest_collection_finish(self, session: object) -> None:
        """Note the tests that may run on this many ranks."""
        from mpi4py import MPI

        for item in session.items:  # type: ignore[attr-defined]
            needs = [mark.kwargs.get("min_size") or 1 for mark in item.iter_markers("mpi")]
            if max(needs, default=1) <= MPI.COMM_WORLD.size:
                self.eligible.append(item.nodeid)

    def pytest_runtest_logreport(self, report: object) -> None:
        """Note one phase of one test."""
        nodeid: str = report.nodeid  # type: ignore[attr-defined]
        if report.failed:  # type: ignore[attr-defined]
            self.failed.add(nodeid)
        if report.when == "call" and (not report.skipped or hasattr(report, "wasxfail")):  # type: ignore[attr-defined]
            self.executed.append(nodeid)
        elif report.skipped:  # type: ignore[attr-defined]
            self.skipped[nodeid] = reason_of(report.longrepr)  # type: ignore[attr-defined]


def run_one_rank(arguments: list[str]) -> int:
    """Run pytest in this process as one rank and leave a record of it.

    Parameters
    ----------
    arguments : list of str
        What to pass on to pytest.
    """
    records, rank = Path(os.environ[RECORDS_VARIABLE]), rank_from_environment()
    (records / f"rank{rank}.pid").write_text(str(os.getpid()))
    arguments = [*arguments, "--with-mpi", "-p", "no:cacheprovider"]
    arguments += [f"--basetemp={os.environ['TMPDIR']}/r{rank}"]
    if rank == 0:
        arguments += [f"--junit-xml={records / 'junit.xml'}"]
    else:
        # All ranks run the same tests: one output is read, the others are kept for failures.
        output = os.open(records / f"rank{rank}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        sys.stdout.flush()
        os.dup2(output, 1)
        os.dup2(output, 2)
    import pytest
    from mpi4py import MPI

    recorder = Recorder()
    status = int(pytest.main(arguments, plugins=[recorder]))
    record = {
        "exit": status,
        "size": MPI.COMM_WORLD.size,
        "eligible": recorder.eligible,
        "executed": recorder.executed,
        "failed": sorted(recorder.failed),
        "skipped": recorder.skipped,
    }
    (records / f"rank{rank}.json").write_text(json.dumps(record))
    return status


# ---------------------------------------------------------------------------------- outside of them


class Job:
    """One mpirun with its deadline.

    Parameters
    ----------
    launcher : Launcher
        The MPI.
    ranks : int
        How many.
    seconds : float
        Deadline of the whole job.
    records : Path
        Folder that gets a folder of this job's name.
    """

    def __init__(self, launcher: Launcher, ranks: int, seconds: float, records: Path) -> None:
        self.launcher, self.ranks, self.seconds = launcher, ranks, seconds
        self.name = f"{launcher.name}-n{ranks}"
        self.records = records / self.name
        self.verdict = Verdict(self.name)

    def run(self, pytest_arguments: list[str]) -> Verdict:
        """Start the job, wait for it, judge it."""
        shutil.rmtree(self.records, ignore_errors=True)
        self.records.mkdir(parents=True)
        started = time.monotonic()
        # Short names: sockets that tests or MPI make below it have 107 bytes in all.
        with tempfile.TemporaryDirectory(prefix="hixl-", ignore_cleanup_errors=True) as temporary:
            status = self._launch(pytest_arguments, temporary)
        self.verdict.seconds = time.monotonic() - started
        if status != 0:
            self.verdict.problems.append(f"mpirun ended with status {status}")
        self._judge(self._read_records())
        return self.verdict

    def _launch(self, pytest_arguments: list[str], temporary: str) -> int:
        environment = {
            RECORDS_VARIABLE: str(self.records),
            "HIXL_RMA_TEST_LANE": self.name,
            "TMPDIR": temporary,
        }
        # Open MPI hands its ranks a terminal whatever we write to.
        colour = f"--color={'yes' if sys.stdout.isatty() else 'no'}"
        program = [sys.executable, __file__, "--as-rank", colour, *pytest_arguments]
        process = self.launcher.start(self.ranks, program, environment, cwd=ROOT)
        try:
            return process.wait(self.seconds)
        except subprocess.TimeoutExpired:
            self.verdict.problems.append(f"not finished after {self.seconds:.0f} s; ended")
            return 124
        finally:
            self._end(process)

    def _end(self, process: subprocess.Popen[str]) -> None:
        """Leave no process of this job behind."""
        end_session(process)
        # Launchers may give ranks process groups of their own; each rank wrote its process id.
        for path in self.records.glob("rank*.pid"):
            pid = int(path.read_text() or 0)
            with contextlib.suppress(OSError):
                if pid and b"--as-rank" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)

    def _read_records(self) -> dict[int, dict[str, object]]:
        found = {}
        for rank in range(self.ranks):
            with contextlib.suppress(OSError, ValueError):
                found[rank] = json.loads((self.records / f"rank{rank}.json").read_text())
        return found

    def _judge(self, records: dict[int, dict[str, object]]) -> None:
        verdict = self.verdict
        for rank in range(self.ranks):
            record = records.get(rank)
            if record is None:
                verdict.problems.append(f"rank {rank} did not end by itself")
                self._show_output(rank)
                continue
            if record["exit"] != 0:
                verdict.problems.append(f"rank {rank}: pytest ended with status {record['exit']}")
                self._show_output(rank)
            if record["size"] != self.ranks:
                verdict.problems.append(f"rank {rank}: MPI shows {record['size']} ranks")
            if not record["executed"]:
                verdict.problems.append(f"rank {rank}: no test was executed")
        if 0 not in records:
            return
        first = records[0]
        executed, skipped = _strings(first["executed"]), first["skipped"]
        assert isinstance(skipped, dict)
        verdict.failed = len(_strings(first["failed"]))
        verdict.passed = len(set(executed) - set(_strings(first["failed"])))
        verdict.skipped = len(skipped)
        for rank, record in records.items():
            if _strings(record["executed"]) != executed:
                verdict.problems.append(f"rank {rank} executed other tests than rank 0")
        missing = [t for t in _strings(first["eligible"]) if t not in set(executed)]
        self._judge_missing(missing, skipped)

    def _judge_missing(self, missing: list[str], skipped: dict[str, str]) -> None:
        """Of the tests that could have run and did not, only expected skips are fine."""
        failed_early = "no outcome: the set-up failed or the run was cut short"
        skips = [Skip(test, skipped.get(test, failed_early), self.name) for test in missing]
        bad = unexpected(skips, read_expectations(EXPECTED_SKIPS))
        self.verdict.problems += [f"not executed: {s.test}: {s.reason}" for s in bad]

    def _show_output(self, rank: int) -> None:
        """Print the end of what a rank other than 0 wrote (rank 0 wrote to our own output)."""
        path = self.records / f"rank{rank}.txt"
        if path.exists():
            lines = path.read_text(errors="replace").splitlines()[-80:]
            print(f"---- rank {rank} of {self.name}, last {len(lines)} lines", *lines, sep="\n")


def _strings(value: object) -> list[str]:
    assert isinstance(value, list)
    return [str(element) for element in value]


def main() -> int:
    """Run the jobs asked for; the exit status is the number of jobs that failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--env", type=Path, default=Path(sys.prefix), help="where mpirun is")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument("--timeout", type=float, default=600, help="seconds for each job")
    parser.add_argument("--records", type=Path, default=ROOT / "build" / "ranks")
    parser.add_argument("pytest", nargs="*", default=[], help="after --: what pytest is to run")
    chosen = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    launcher = Launcher.found_in(chosen.env.resolve())
    verdicts = []
    for ranks in chosen.ranks:
        print(f"\n==== {launcher.name}, {ranks} rank{'s' if ranks > 1 else ''}")
        job = Job(launcher, ranks, chosen.timeout, chosen.records.resolve())
        verdict = job.run(chosen.pytest or ["tests/mpi"])
        verdicts.append(verdict)
        for problem in verdict.problems:
            print(f"run_ranks: {verdict.name}: {problem}")
    print("\n==== ranks")
    for verdict in verdicts:
        print(f"{verdict}{'  <- FAILED' if verdict.problems else ''}")
    return sum(bool(verdict.problems) for verdict in verdicts)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--as-rank"]:
        sys.exit(run_one_rank(sys.argv[2:]))
    sys.exit(main())
