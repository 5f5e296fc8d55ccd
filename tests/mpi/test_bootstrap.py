# SPDX-License-Identifier: Apache-2.0
"""The bootstrap over mpi4py: exchange, the duplicate that it keeps, and ranks that never call."""

import signal
import threading
import time

import pytest

from hixl_rma.bootstrap import MAX_BYTES, Deadline, MpiBootstrap, mpi, resolve
from hixl_rma.errors import ArgumentError, BootstrapError, RmaTimeoutError

LONG = 30  # [s] a deadline that no passing test comes near
SHORT = 0.3  # [s] a deadline that passes on purpose

pytestmark = pytest.mark.mpi

MPI = pytest.importorskip("mpi4py.MPI")


@pytest.fixture
def own(comm):
    """A duplicate, so that what a test breaks is broken for this test alone."""
    duplicate = comm.Dup()
    yield duplicate
    if duplicate:
        duplicate.Free()


def gather_ranks(bootstrap):
    return bootstrap.allgather(b"%d" % bootstrap.rank, Deadline(LONG))


def ranks_below(size):
    return [b"%d" % rank for rank in range(size)]


# -- the exchange -------------------------------------------------------------------------------


def test_every_rank_gets_the_bytes_of_all_by_rank(comm):
    bootstrap = resolve(comm)
    assert (bootstrap.rank, bootstrap.size) == (comm.rank, comm.size)
    for turn in (0, 1, 1000, 100_000):
        found = bootstrap.allgather(bytes([comm.rank]) * (comm.rank + turn), Deadline(LONG))
        assert found == [bytes([rank]) * (rank + turn) for rank in range(comm.size)]


def test_nothing_from_everyone_is_nothing_for_everyone(comm):
    assert resolve(comm).allgather(b"", Deadline(LONG)) == [b""] * comm.size


def test_none_means_the_world(comm):
    bootstrap = resolve(None)
    assert isinstance(bootstrap, MpiBootstrap)
    assert (bootstrap.rank, bootstrap.size) == (comm.rank, comm.size)


def test_comm_self_is_a_job_of_one():
    bootstrap = resolve(MPI.COMM_SELF)
    assert (bootstrap.rank, bootstrap.size) == (0, 1)
    assert bootstrap.allgather(b"mine", Deadline(0)) == [b"mine"]


@pytest.mark.mpi(min_size=2)
def test_ranks_are_those_of_the_communicator_that_was_given(comm):
    reverse = comm.Split(color=comm.rank % 2, key=-comm.rank)
    bootstrap = resolve(reverse)
    mine = [rank for rank in range(comm.size) if rank % 2 == comm.rank % 2]
    found = bootstrap.allgather(b"%d" % comm.rank, Deadline(LONG))
    assert found == [b"%d" % rank for rank in reversed(mine)]
    reverse.Free()


def test_too_much_from_one_rank_is_an_error_on_all_and_the_next_exchange_works(comm):
    bootstrap = resolve(comm)
    last = comm.rank == comm.size - 1
    with pytest.raises(ArgumentError, match=f"rank {comm.size - 1} gives {MAX_BYTES + 1} bytes"):
        bootstrap.allgather(bytes(MAX_BYTES + 1) if last else b"", Deadline(LONG))
    assert gather_ranks(bootstrap) == ranks_below(comm.size)


# -- the duplicate ------------------------------------------------------------------------------


@pytest.mark.mpi(min_size=2)
def test_messages_of_the_user_are_not_met(comm):
    peer = comm.rank ^ 1
    pending = []
    buffer = bytearray(8)
    if peer < comm.size:
        pending.append(comm.Irecv([buffer, MPI.BYTE], source=peer, tag=MPI.ANY_TAG))
    assert gather_ranks(resolve(comm)) == ranks_below(comm.size)
    if peer < comm.size:
        pending.append(comm.Isend([b"8 bytes.", MPI.BYTE], dest=peer))
    MPI.Request.Waitall(pending)
    assert peer >= comm.size or buffer == b"8 bytes."


@pytest.mark.mpi(min_size=2)
def test_one_duplicate_serves_all_bootstraps_over_a_communicator(own):
    gather_ranks(resolve(own))
    channel = mpi._channel_of(own)
    duplicate = channel.comm
    gather_ranks(resolve(own))
    assert mpi._channel_of(own) is channel
    assert channel.comm is duplicate


@pytest.mark.mpi(min_size=2)
def test_the_duplicate_is_freed_with_its_parent(own):
    gather_ranks(resolve(own))
    channel = mpi._channel_of(own)
    own.Free()
    assert channel.comm is None


@pytest.mark.mpi(min_size=2)
def test_a_communicator_that_takes_the_place_of_a_freed_one_gets_a_duplicate_of_its_own(comm):
    for turn in range(200):
        part = comm.Split(color=(comm.rank + turn) % 2, key=comm.rank)
        assert gather_ranks(resolve(part)) == ranks_below(part.size)
        part.Free()


@pytest.mark.mpi(min_size=2)
def test_a_duplicate_of_the_parent_has_a_channel_of_its_own(own):
    gather_ranks(resolve(own))
    twin = own.Dup()
    assert mpi._channel_of(twin) is not mpi._channel_of(own)
    twin.Free()


@pytest.mark.mpi(min_size=2)
def test_a_bootstrap_over_a_freed_communicator_says_so(own):
    bootstrap = resolve(own)
    own.Free()
    with pytest.raises(BootstrapError, match="was freed"):
        bootstrap.allgather(b"", Deadline(LONG))


# -- communicators that cannot be used ----------------------------------------------------------


def test_a_null_communicator_is_refused():
    with pytest.raises(ArgumentError, match="COMM_NULL"):
        resolve(MPI.COMM_NULL)


@pytest.mark.mpi(min_size=2)
def test_an_inter_communicator_is_refused_with_the_way_out(comm):
    part = comm.Split(color=comm.rank % 2, key=comm.rank)
    between = part.Create_intercomm(0, comm, (comm.rank + 1) % 2)
    with pytest.raises(ArgumentError, match="Merge"):
        resolve(between)
    between.Free()
    part.Free()


# -- ranks that never call ----------------------------------------------------------------------


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("warm", [False, True], ids=["first", "later"])
def test_a_rank_that_never_calls_is_a_time_out_at_the_others(comm, own, warm):
    bootstrap = resolve(own)
    if warm:
        gather_ranks(bootstrap)
    if comm.rank != comm.size - 1:
        begin = time.monotonic()
        with pytest.raises(
            RmaTimeoutError, match=rf"rank {comm.rank} of {comm.size} waited {SHORT}"
        ):
            bootstrap.allgather(b"", Deadline(SHORT))
        assert SHORT <= time.monotonic() - begin < SHORT + 1
    comm.Barrier()


@pytest.mark.mpi(min_size=2)
def test_after_a_time_out_every_bootstrap_over_that_communicator_is_broken_and_others_are_not(
    comm, own
):
    if comm.rank == 0:
        with pytest.raises(RmaTimeoutError):
            resolve(own).allgather(b"", Deadline(SHORT))
        with pytest.raises(BootstrapError, match="cannot be used any more: a time-out"):
            resolve(own).allgather(b"", Deadline(LONG))
    comm.Barrier()
    assert gather_ranks(resolve(comm)) == ranks_below(comm.size)


@pytest.mark.mpi(min_size=2)
def test_a_rank_that_comes_after_the_time_out_of_another_is_not_left_hanging(comm, own):
    bootstrap = resolve(own)
    if comm.rank == 0:
        with pytest.raises(RmaTimeoutError):
            bootstrap.allgather(b"", Deadline(SHORT))
    comm.Barrier()
    if comm.rank != 0:
        # It finds rank 0's half of the first step, and nobody for the next.
        with pytest.raises(RmaTimeoutError):
            bootstrap.allgather(b"", Deadline(SHORT))
    comm.Barrier()


@pytest.mark.mpi(min_size=2)
def test_a_signal_ends_the_wait_within_a_tenth_of_a_second(comm, own):
    if comm.rank == 0:
        caught = []

        def on_signal(*_):
            caught.append(time.monotonic())
            raise InterruptedError

        before = signal.signal(signal.SIGUSR1, on_signal)
        sent = []

        def send():
            time.sleep(SHORT)
            sent.append(time.monotonic())
            signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

        sender = threading.Thread(target=send)
        sender.start()
        try:
            with pytest.raises(InterruptedError):
                resolve(own).allgather(b"", Deadline(LONG))
        finally:
            sender.join()
            signal.signal(signal.SIGUSR1, before)
        assert caught[0] - sent[0] < 0.1
        with pytest.raises(BootstrapError, match="InterruptedError left a collective"):
            resolve(own).allgather(b"", Deadline(LONG))
    comm.Barrier()


# -- threads ------------------------------------------------------------------------------------


def test_another_thread_may_exchange_where_mpi_allows_it(comm):
    # Both libraries that the tests run with allow it; what happens elsewhere, the next test shows.
    assert MPI.Query_thread() >= MPI.THREAD_SERIALIZED
    found = []
    thread = threading.Thread(target=lambda: found.append(gather_ranks(resolve(comm))))
    thread.start()
    thread.join(LONG)
    assert found == [ranks_below(comm.size)]


@pytest.mark.mpi(min_size=2)
def test_another_thread_is_refused_where_mpi_forbids_it(comm, monkeypatch):
    class Funneled:
        def __getattr__(self, name):
            return getattr(MPI, name)

        def Query_thread(self):
            return MPI.THREAD_FUNNELED

    bootstrap = resolve(comm)
    monkeypatch.setattr(mpi, "_mpi", Funneled)
    caught = []

    def work():
        try:
            bootstrap.allgather(b"", Deadline(LONG))
        except BootstrapError as error:
            caught.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(LONG)
    assert "THREAD_FUNNELED" in caught[0]
    assert gather_ranks(bootstrap) == ranks_below(comm.size)
