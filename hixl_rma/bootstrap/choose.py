# SPDX-License-Identifier: Apache-2.0
"""Choose the bootstrap for the ``comm=`` argument."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import cast

from hixl_rma.bootstrap import mpi
from hixl_rma.bootstrap.base import Bootstrap
from hixl_rma.bootstrap.local import LocalBootstrap
from hixl_rma.config import LOCAL_JOB
from hixl_rma.errors import ArgumentError, ArgumentTypeError, BootstrapError

__all__ = ["launcher", "parse_local_job", "resolve"]

# Who sets what: Open MPI's mpirun the first two; MPICH's mpiexec (hydra) and srun --mpi=pmi2 the
# PMI ones and hydra MPI_LOCALNRANKS; MVAPICH2, Cray PALS and srun the rest. SLURM_NTASKS alone is
# also set in a batch script, hence SLURM_STEP_NUM_TASKS, of srun's steps alone, goes before it.
_COUNTS = (
    "OMPI_COMM_WORLD_SIZE",
    "PMI_SIZE",
    "MPI_LOCALNRANKS",
    "MV2_COMM_WORLD_SIZE",
    "PALS_NRANKS",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_NTASKS",
)
# A rank above 0 has others below it, whatever it knows of their number.
_RANKS = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "PALS_RANKID", "SLURM_PROCID")

_jobs: dict[str, LocalBootstrap] = {}
_jobs_lock = threading.Lock()


def resolve(comm: object = None, environ: Mapping[str, str] | None = None) -> Bootstrap:
    """Return the bootstrap that an argument means.

    Parameters
    ----------
    comm : None, mpi4py.MPI.Intracomm or Bootstrap, default None
        None takes the job of ``HIXL_RMA_LOCAL_JOB``; else ``MPI.COMM_WORLD`` where mpi4py can be
        imported; else the process alone, if no launcher tells of more than one rank.
    environ : mapping of str to str or None, default None
        The environment; None takes that of the process.

    Returns
    -------
    Bootstrap
        The same object in each call for the same ``HIXL_RMA_LOCAL_JOB``, until it is closed.

    Raises
    ------
    ArgumentTypeError
        When `comm` is none of these.
    ArgumentError
        When the communicator cannot be used, or ``HIXL_RMA_LOCAL_JOB`` has a wrong form.
    BootstrapError
        When a launcher started several ranks that mpi4py does not bring together.

    Notes
    -----
    Local: ranks meet in the first exchange.
    """
    if comm is None:
        return _default(os.environ if environ is None else environ)
    if mpi.is_communicator(comm):
        return mpi.MpiBootstrap(comm)
    if _is_bootstrap(comm):
        return cast(Bootstrap, comm)
    msg = (
        "comm takes None, a communicator of mpi4py or a Bootstrap, not "
        f"{comm.__name__ + ' itself' if isinstance(comm, type) else type(comm).__name__}"
    )
    raise ArgumentTypeError(msg)


def _is_bootstrap(obj: object) -> bool:
    return (
        not isinstance(obj, type)
        and callable(getattr(obj, "allgather", None))
        and all(hasattr(obj, name) for name in ("rank", "size", "name"))
    )


def _default(environ: Mapping[str, str]) -> Bootstrap:
    job = environ.get(LOCAL_JOB, "").strip()
    if job:
        return _local_job(job)
    launched = launcher(environ)
    if mpi.can_import():
        world = mpi.world()
        if world.size == 1 and launched:
            msg = (
                f"a launcher started several ranks ({launched}), but each is alone in its "
                "MPI.COMM_WORLD: the mpirun and mpi4py's MPI library do not belong together"
            )
            raise BootstrapError(msg)
        return world
    if launched:
        msg = (
            f"a launcher started several ranks ({launched}), but mpi4py cannot be imported: "
            "pip install 'hixl-rma[mpi]', or pass comm=LocalBootstrap() to be alone"
        )
        raise BootstrapError(msg)
    return LocalBootstrap()


def launcher(environ: Mapping[str, str]) -> str:
    """Return the variable that tells of more than one rank, as ``NAME=value``; "" if none does."""
    in_step = "SLURM_STEP_NUM_TASKS" in environ
    for names, least in ((_COUNTS, 2), (_RANKS, 1)):
        for name in names:
            if name == "SLURM_NTASKS" and (in_step or "SLURM_PROCID" not in environ):
                continue
            value = environ.get(name, "")
            if value.isascii() and value.isdigit() and int(value) >= least:
                return f"{name}={value}"
    return ""


def parse_local_job(text: str) -> tuple[str, int, int]:
    """Return the name, rank and size in a value of ``HIXL_RMA_LOCAL_JOB``.

    Raises
    ------
    ArgumentError
        When it has another form than ``name:rank:size``.
    """
    name, _, rest = text.rpartition(":")
    name, _, rank = name.rpartition(":")
    if not (name and all(part.isascii() and part.isdigit() for part in (rank, rest))):
        msg = f"{LOCAL_JOB}={text!r}: it takes name:rank:size, such as demo:0:2"
        raise ArgumentError(msg)
    return name, int(rank), int(rest)


def _local_job(text: str) -> LocalBootstrap:
    with _jobs_lock:
        job = _jobs.get(text)
        if job is None or job.closed:
            name, rank, size = parse_local_job(text)
            try:
                job = LocalBootstrap(name, rank, size)
            except ArgumentError as error:
                msg = f"{LOCAL_JOB}={text!r}: {error.detail}"
                raise ArgumentError(msg) from None
            _jobs[text] = job
        return job
