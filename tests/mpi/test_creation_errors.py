# SPDX-License-Identifier: Apache-2.0
"""An error of one rank during the creation of a window is an error of every rank."""

import mmap

import numpy as np
import pytest

import hixl_rma as rma
from support.windows import assert_usable, environment

pytestmark = pytest.mark.mpi


def read_only_array():
    array = np.zeros(8)
    array.flags.writeable = False
    return array


BAD_ALLOCATIONS = {
    "negative count": (dict(shape=-1), rma.ArgumentError),
    "negative extent": (dict(shape=(2, -3)), rma.ArgumentError),
    "size beyond 64 bits": (dict(shape=(1 << 40, 1 << 40)), (rma.ArgumentError, rma.ResourceError)),
    "count beyond 64 bits": (dict(shape=1 << 70), (rma.ArgumentError, rma.ResourceError)),
    "float count": (dict(shape=2.5), rma.ArgumentTypeError),
    "bool count": (dict(shape=True), rma.ArgumentTypeError),
    "text count": (dict(shape="8"), rma.ArgumentTypeError),
    "no count": (dict(shape=None), rma.ArgumentTypeError),
    "unknown dtype": (dict(shape=8, dtype="no such type"), rma.ArgumentTypeError),
    "object dtype": (dict(shape=8, dtype="O"), rma.ArgumentTypeError),
    "unit of zero": (dict(shape=8, disp_unit=0), rma.ArgumentError),
    "negative unit": (dict(shape=8, disp_unit=-8), rma.ArgumentError),
    "unit beyond 64 bits": (dict(shape=8, disp_unit=1 << 64), rma.ArgumentError),
    "float unit": (dict(shape=8, disp_unit=1.0), rma.ArgumentTypeError),
    "bool unit": (dict(shape=8, disp_unit=True), rma.ArgumentTypeError),
    "text unit": (dict(shape=8, disp_unit="8"), rma.ArgumentTypeError),
    "negative notifications": (dict(shape=8, notifications=-1), rma.ArgumentError),
    "too many notifications": (dict(shape=8, notifications=65_537), rma.ArgumentError),
    "float notifications": (dict(shape=8, notifications=2.0), rma.ArgumentTypeError),
    "bool notifications": (dict(shape=8, notifications=True), rma.ArgumentTypeError),
    "unknown memory": (dict(shape=8, memory="paper"), rma.ArgumentError),
}

BAD_MEMORY = {
    "read-only array": (read_only_array, rma.ReadOnlyBufferError),
    "bytes": (lambda: bytes(8), rma.ReadOnlyBufferError),
    "read-only mapping": (
        lambda: mmap.mmap(-1, 4096, prot=mmap.PROT_READ),
        rma.ReadOnlyBufferError,
    ),
    "every second element": (lambda: np.zeros(8)[::2], rma.ArgumentError),
    "reversed": (lambda: np.zeros(8)[::-1], rma.ArgumentError),
    "columns": (lambda: np.zeros((4, 4))[:, 1:3], rma.ArgumentError),
    "object array": (lambda: np.array([None, 1], dtype=object), rma.ArgumentTypeError),
    "text": (lambda: "text", rma.ArgumentTypeError),
    "number": (lambda: 12, rma.ArgumentTypeError),
    "nothing": (lambda: None, rma.ArgumentTypeError),
    "list": (lambda: [1, 2, 3], rma.ArgumentTypeError),
}


def create_with_error(comm, culprit, good, bad, expected):
    """Let one rank be wrong; the others must learn of it in an error that names that rank."""
    wrong = comm.rank == culprit
    with pytest.raises(rma.RmaError) as caught:
        (bad if wrong else good)()
    if wrong:
        classes = expected if isinstance(expected, tuple) else (expected,)
        assert type(caught.value) in classes, repr(caught.value)
    else:
        assert f"rank {culprit}" in str(caught.value), str(caught.value)
    with rma.Window.allocate(64, comm=comm) as win:
        assert_usable(win, comm)


@pytest.mark.parametrize("case", BAD_ALLOCATIONS)
def test_a_bad_argument_of_one_rank_raises_on_all(comm, case):
    arguments, expected = BAD_ALLOCATIONS[case]
    create_with_error(
        comm,
        comm.size - 1,
        lambda: rma.Window.allocate(8, comm=comm),
        lambda: rma.Window.allocate(
            arguments["shape"],
            arguments.get("dtype", "u1"),
            comm=comm,
            **{name: arguments[name] for name in arguments if name not in ("shape", "dtype")},
        ),
        expected,
    )


@pytest.mark.parametrize("case", BAD_MEMORY)
def test_bad_memory_of_one_rank_raises_on_all(comm, case):
    factory, expected = BAD_MEMORY[case]
    memory = factory()
    create_with_error(
        comm,
        0,
        lambda: rma.Window.create(np.zeros(8), comm=comm),
        lambda: rma.Window.create(memory, comm=comm),
        expected,
    )


@pytest.mark.mpi(min_size=2)
def test_the_number_of_notifications_must_be_equal_on_all_ranks(comm):
    with pytest.raises(rma.ArgumentError) as caught:
        rma.Window.allocate(8, comm=comm, notifications=16 + comm.rank % 2)
    assert "16" in str(caught.value)
    assert "17" in str(caught.value)
    with rma.Window.allocate(64, comm=comm) as win:
        assert_usable(win, comm)


@pytest.mark.parametrize("count", [1, 2, 256, 65_536])
def test_a_window_may_have_up_to_65536_notifications(comm, count):
    with rma.Window.allocate(64, comm=comm, notifications=count) as win:
        target = (comm.rank + 1) % comm.size
        with win.lock(target):
            win.notify(target, notification=count - 1)
            with pytest.raises(rma.RangeError):
                win.notify(target, notification=count)
        assert win.wait_notify(count - 1, timeout=20).count == 1


def test_records_beyond_the_cap_are_a_resource_error(comm):
    with environment(HIXL_RMA_NOTIFICATION_CAP="65536"):
        with pytest.raises(rma.ResourceError) as caught:
            rma.Window.allocate(8, comm=comm, notifications=65_536)
        assert "HIXL_RMA_NOTIFICATION_CAP" in str(caught.value)
    with rma.Window.allocate(64, comm=comm) as win:
        assert_usable(win, comm)


@pytest.mark.mpi(min_size=2)
def test_memory_no_transport_can_reach_is_a_transport_error_with_reasons(comm):
    with environment(HIXL_RMA_TRANSPORTS="shm"):
        with pytest.raises(rma.TransportError) as caught:
            rma.Window.create(np.zeros(8), comm=comm)
        assert "shm" in caught.value.reasons
        assert caught.value.reasons["shm"]
        assert "allowed" in caught.value.reasons["staged"]
    with rma.Window.allocate(64, comm=comm) as win:
        assert_usable(win, comm)


@pytest.mark.parametrize("communicator", [3, "world", object()], ids=["int", "text", "object"])
def test_something_else_than_a_communicator_is_a_type_error(communicator):
    with pytest.raises(rma.ArgumentTypeError):
        rma.Window.allocate(8, comm=communicator)


def test_the_null_communicator_is_refused():
    mpi = pytest.importorskip("mpi4py.MPI")
    with pytest.raises(rma.ArgumentError):
        rma.Window.allocate(8, comm=mpi.COMM_NULL)


@pytest.mark.mpi(min_size=2)
def test_an_intercommunicator_is_refused(comm):
    side = comm.rank % 2
    local = comm.Split(side, comm.rank)
    inter = local.Create_intercomm(0, comm, 1 - side)
    try:
        with pytest.raises(rma.ArgumentError):
            rma.Window.allocate(8, comm=inter)
    finally:
        inter.Free()
        local.Free()
