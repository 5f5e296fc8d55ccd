# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the suites that run under mpirun at 1, 2, 3 and 4 ranks."""

import functools

import pytest

from support.windows import ALLOCATE, KINDS, open_window


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: more than a few seconds; left out of the quick run")


@pytest.fixture(scope="session")
def comm():
    return pytest.importorskip("mpi4py.MPI").COMM_WORLD


@pytest.fixture(params=KINDS, ids=str)
def kind(request):
    """Flavour of the window and the transports that may reach it."""
    return request.param


@pytest.fixture
def make(comm, kind):
    """Open a window of each flavour over each transport: make(shape, dtype, **options)."""
    return functools.partial(open_window, kind=kind, comm=comm)


@pytest.fixture
def make_one(comm):
    """Open an allocated window over the transports the library chooses by itself."""
    return functools.partial(open_window, kind=ALLOCATE, comm=comm)


@pytest.fixture
def sync_only(make_one):
    """A window of 64 uint64, for tests about epochs and notifications rather than about bytes."""
    with make_one(64, "u8") as window:
        yield window
