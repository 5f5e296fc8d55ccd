# SPDX-License-Identifier: Apache-2.0
"""Under mpirun a test that fails on one rank fails on all: the ranks agree on each outcome."""

from __future__ import annotations

import array
import os
import time
from typing import Any

import pytest

from support.hang import HangGuard, slow_factor

PASSED, SKIPPED, FAILED = range(3)
GRACE_SECONDS = 10.0
"""How long a rank that failed waits for the others to arrive before it ends the job."""


class Agreement:
    """The ranks of one job, as the tests see them. Without mpirun, or on one rank, it does nothing.

    Parameters
    ----------
    enabled : bool
        Whether pytest was told that it runs under mpirun. mpi4py is imported only then.
    guard : HangGuard
        Writes past the output capture.
    """

    def __init__(self, *, enabled: bool, guard: HangGuard) -> None:
        self.rank, self.size, self._guard = 0, 1, guard
        self._mpi: Any = None
        self._comm: Any = None
        if enabled:
            from mpi4py import MPI

            self.rank, self.size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
            if self.size > 1:
                # Our own communicator: a test that leaves messages on COMM_WORLD does not disturb
                # the vote.
                self._mpi = MPI
                self._comm = MPI.COMM_WORLD.Dup()

    def settle(self, report: pytest.TestReport) -> None:
        """Make the outcome of one phase the worst of all ranks' outcomes.

        Parameters
        ----------
        report : pytest.TestReport
            This rank's outcome; changed in place.
        """
        if self._comm is None:
            return
        mine = {"passed": PASSED, "skipped": SKIPPED, "failed": FAILED}[report.outcome]
        worst, best = self._vote(mine, report)
        if worst == FAILED and mine != FAILED:
            report.outcome = "failed"
            report.longrepr = f"{report.nodeid} [{report.when}]: failed on another rank"
        elif worst != best and mine != FAILED:
            report.outcome = "failed"
            report.longrepr = f"{report.nodeid} [{report.when}]: skipped on some ranks only"

    def barrier(self) -> None:
        """Wait for all ranks; lets MPI open what it opens lazily."""
        if self._comm is not None:
            self._comm.Barrier()

    def _vote(self, mine: int, report: pytest.TestReport) -> tuple[int, int]:
        ballot, result = array.array("i", [mine, -mine]), array.array("i", [0, 0])
        request = self._comm.Iallreduce(ballot, result, op=self._mpi.MAX)
        grace = GRACE_SECONDS * slow_factor()
        started, patient = time.monotonic(), False
        while not request.Test():
            # Ranks may outnumber cores: the vote gives the core away instead of spinning.
            time.sleep(0.0005)
            if not patient and time.monotonic() - started > 0.5:
                # Who only waits must not run out of time first: the others show where they hang.
                self._guard.shift(grace)
                patient = True
            if mine == FAILED and time.monotonic() - started > grace:
                self._give_up(report, grace)
        if patient:
            self._guard.shift(0)
        return result[0], -result[1]

    def _give_up(self, report: pytest.TestReport, grace: float) -> None:
        """End the job: others hang in the test that failed here, and this report would be lost."""
        self._guard.say(
            f"\nrank {self.rank}: {report.nodeid} [{report.when}] failed here and not all ranks"
            f" came to the end of it within {grace:.0f} s; ending the job\n{report.longreprtext}"
        )
        self._comm.Abort(1)
        os._exit(1)
