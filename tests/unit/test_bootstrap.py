# SPDX-License-Identifier: Apache-2.0
"""The choice of a bootstrap, and the deadline."""

import sys
import time
import types

import pytest

from hixl_rma.bootstrap import Deadline, LocalBootstrap, choose, mpi, resolve
from hixl_rma.errors import ArgumentError, ArgumentTypeError, BootstrapError


@pytest.fixture
def without_mpi4py(monkeypatch):
    monkeypatch.setattr(mpi, "can_import", lambda: False)


class Alone:
    """What a bootstrap over a world of one rank looks like."""

    rank, size, name = 0, 1, "mpi:world"

    def allgather(self, data, _deadline=None):
        return [data]


class FakeCommunicator:
    """Has the methods by which a communicator of mpi4py is recognised."""

    def method(self, *_):
        return 0

    Get_rank = Get_size = Idup = Iallgather = Iallgatherv = Set_attr = method
    # mpi4py's communicators look like bootstraps, too; `allgather` of theirs pickles.
    rank, size, name, allgather = 0, 1, "comm", method


# -- the deadline -------------------------------------------------------------------------------


def test_a_deadline_without_a_time_out_never_expires():
    deadline = Deadline(None)
    assert deadline.remaining() is None
    assert not deadline.expired


def test_a_deadline_counts_down_to_zero_and_not_below():
    deadline = Deadline(0.01)
    assert 0 < deadline.remaining() <= 0.01
    time.sleep(0.02)
    assert deadline.remaining() == 0
    assert deadline.expired


def test_a_deadline_of_zero_has_expired():
    assert Deadline(0).expired


def test_a_deadline_says_what_is_left_of_what():
    assert repr(Deadline(None)) == "Deadline(None)"
    assert repr(Deadline(0)) == "Deadline(0, 0.000 s left)"


# -- what comm= takes ---------------------------------------------------------------------------


def test_a_bootstrap_is_taken_as_it_is():
    for bootstrap in (LocalBootstrap(), Alone()):
        assert resolve(bootstrap) is bootstrap


def test_a_communicator_is_recognised_before_a_bootstrap(monkeypatch):
    monkeypatch.setattr(mpi, "MpiBootstrap", lambda comm: ("over", comm))
    comm = FakeCommunicator()
    assert resolve(comm) == ("over", comm)


@pytest.mark.parametrize("comm", [0, "world", object(), [], Alone, FakeCommunicator, types])
def test_anything_else_is_refused(comm):
    with pytest.raises(ArgumentTypeError, match="comm takes None, a communicator of mpi4py"):
        resolve(comm)


# -- what comm=None means -----------------------------------------------------------------------


@pytest.mark.usefixtures("without_mpi4py")
def test_without_mpi4py_and_launcher_the_process_is_alone():
    bootstrap = resolve(None, {})
    assert (bootstrap.rank, bootstrap.size) == (0, 1)


@pytest.mark.usefixtures("without_mpi4py")
@pytest.mark.parametrize(
    "environ",
    [
        {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"},  # Open MPI
        {"PMI_SIZE": "2", "PMI_RANK": "0", "MPI_LOCALNRANKS": "2"},  # MPICH
        {"MPI_LOCALNRANKS": "3"},
        {"PMI_RANK": "1"},
        {"PMIX_RANK": "1"},  # srun --mpi=pmix
        {"SLURM_NTASKS": "2", "SLURM_PROCID": "0"},
        {"SLURM_NTASKS": "1", "SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "0"},
        {"MV2_COMM_WORLD_SIZE": "8"},
        {"PALS_RANKID": "5"},
    ],
)
def test_a_launcher_with_several_ranks_and_no_mpi4py_is_an_error_that_says_how_to_get_it(environ):
    with pytest.raises(BootstrapError, match=r"pip install 'hixl-rma\[mpi\]'"):
        resolve(None, environ)


@pytest.mark.usefixtures("without_mpi4py")
@pytest.mark.parametrize(
    "environ",
    [
        {"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0", "PMIX_RANK": "0"},
        {"PMI_SIZE": "1", "PMI_RANK": "0", "MPI_LOCALNRANKS": "1"},
        {"SLURM_NTASKS": "8"},  # an allocation, outside any step
        {"SLURM_NTASKS": "8", "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"},
        {"OMPI_COMM_WORLD_SIZE": "many"},
        {"PMI_SIZE": ""},
    ],
)
def test_a_launcher_of_one_rank_leaves_the_process_alone(environ):
    assert resolve(None, environ).size == 1


def test_ranks_that_a_launcher_started_and_mpi_does_not_unite_are_an_error(monkeypatch):
    monkeypatch.setattr(mpi, "can_import", lambda: True)
    monkeypatch.setattr(mpi, "world", Alone)
    assert resolve(None, {}).name == "mpi:world"
    with pytest.raises(BootstrapError, match=r"PMI_SIZE=4.*do not belong together"):
        resolve(None, {"PMI_SIZE": "4"})


@pytest.mark.parametrize("broken", [ImportError("no libmpi.so"), RuntimeError("no MPI library")])
def test_an_mpi4py_that_finds_no_mpi_library_counts_as_absent(monkeypatch, broken):
    def fail():
        raise broken

    monkeypatch.setattr(mpi, "_installed", lambda: True)
    monkeypatch.setattr(mpi, "_mpi", fail)
    assert not mpi.can_import()


def test_a_module_that_hides_mpi4py_counts_as_absent(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    assert not mpi.can_import()


# -- HIXL_RMA_LOCAL_JOB -------------------------------------------------------------------------


def test_the_local_job_wins_over_mpi(monkeypatch):
    monkeypatch.setattr(mpi, "can_import", lambda: pytest.fail("asked for mpi4py"))
    with resolve(None, {"HIXL_RMA_LOCAL_JOB": "a:b:0:1", "PMI_SIZE": "4"}) as bootstrap:
        assert (bootstrap.name, bootstrap.rank, bootstrap.size) == ("local:a:b", 0, 1)


def test_the_local_job_is_joined_once_until_it_is_closed():
    environ = {"HIXL_RMA_LOCAL_JOB": "once:0:1"}
    first = resolve(None, environ)
    assert resolve(None, environ) is first
    first.close()
    second = resolve(None, environ)
    assert second is not first
    second.close()


@pytest.mark.parametrize(
    "text", ["name", "name:0", ":0:1", "name:x:1", "name:0:", "name:-1:2", "name:2:2", "name:0:0"]
)
def test_a_local_job_of_another_form_is_refused_with_its_text(text):
    with pytest.raises(ArgumentError, match=f"HIXL_RMA_LOCAL_JOB='{text}'"):
        resolve(None, {"HIXL_RMA_LOCAL_JOB": text})


def test_the_launcher_variable_is_told_with_its_value():
    assert choose.launcher({"PMI_SIZE": "2"}) == "PMI_SIZE=2"
    assert choose.launcher({}) == ""
