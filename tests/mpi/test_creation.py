# SPDX-License-Identifier: Apache-2.0
"""Windows are made collectively, each rank with its own size and unit."""

import gc
import resource

import numpy as np
import pytest

import hixl_rma as rma
from support.windows import assert_usable, neighbours, open_window, pattern, raw

pytestmark = pytest.mark.mpi


def test_a_window_knows_its_rank_and_size(make, comm):
    with make(16) as win:
        assert (win.rank, win.size) == (comm.rank, comm.size)


def test_without_a_communicator_the_window_spans_the_world(comm):
    with rma.Window.allocate(8) as win:
        assert (win.rank, win.size) == (comm.rank, comm.size)
        assert_usable(win, comm)


@pytest.mark.parametrize("shape", [0, 1, 7, np.int64(5), (3,), (3, 4), (2, 3, 4), (4, 0), ()])
@pytest.mark.parametrize("dtype", ["u1", np.float32, np.dtype("i8"), "c16", bool])
def test_the_local_view_has_the_shape_and_type_asked_for(make_one, shape, dtype):
    with make_one(shape, dtype) as win:
        assert win.local.shape == np.empty(shape).shape
        assert win.local.dtype == np.dtype(dtype)


def test_a_structured_type_may_be_the_type_of_a_window(make_one):
    point = np.dtype([("x", "f8"), ("tag", "i4")])
    with make_one(5, point) as win:
        win.local["x"] = 1.5
        assert win.local.dtype == point
        assert (win.local["x"] == 1.5).all()


@pytest.mark.parametrize("shape", [1, 100, (3, 5)])
def test_a_created_window_shows_the_memory_of_the_caller(comm, shape):
    memory = np.arange(np.prod(shape), dtype="i4").reshape(shape)
    with rma.Window.create(memory, comm=comm) as win:
        assert np.shares_memory(win.local, memory)
        assert win.local.shape == memory.shape
        win.local[...] = comm.rank
        assert (memory == comm.rank).all()


@pytest.mark.parametrize(
    "wrap", [bytearray, memoryview, np.array], ids=["bytearray", "memoryview", "ndarray"]
)
def test_create_takes_any_writable_buffer(comm, wrap):
    memory = bytearray(64) if wrap is not np.array else np.zeros(64, "u1")
    right, left = neighbours(comm)
    with rma.Window.create(wrap(memory) if wrap is memoryview else memory, comm=comm) as win:
        comm.Barrier()
        with win.lock(right):
            win.put(pattern(comm.rank, 64), right, 0)
        comm.Barrier()
        assert bytes(memory) == pattern(left, 64).tobytes()


def test_a_created_window_keeps_the_memory_alive(comm):
    right, left = neighbours(comm)
    with rma.Window.create(np.zeros(1 << 16, "u1"), comm=comm) as win:
        gc.collect()
        comm.Barrier()
        with win.lock(right):
            win.put(pattern(comm.rank, 1 << 16), right, 0)
        comm.Barrier()
        assert raw(win).tobytes() == pattern(left, 1 << 16).tobytes()


def test_a_bytearray_cannot_be_resized_while_it_is_a_window(comm):
    memory = bytearray(64)
    win = rma.Window.create(memory, comm=comm)
    with pytest.raises(BufferError):
        memory.append(1)
    win.free()
    del win
    gc.collect()
    memory.append(1)
    assert len(memory) == 65


def test_a_rank_may_bring_no_bytes(make, comm):
    count = 64 if comm.rank % 2 == 0 else 0
    right, _ = neighbours(comm)
    with make(count) as win:
        comm.Barrier()
        with win.lock(right):
            win.put(np.empty(0, "u1"), right, 0)
            if right % 2 == 0:
                win.put(pattern(comm.rank, 64), right, 0)
            else:
                with pytest.raises(rma.RangeError):
                    win.put(pattern(comm.rank, 1), right, 0)
        comm.Barrier()
        assert win.local.size == count
    with make(0) as win:
        assert win.local.size == 0


def test_each_rank_has_its_own_size_and_displacement_unit(make, comm):
    units = [1, 8, 4, 2]
    counts = [64, 512, 40, 1000]
    rank, (right, left) = comm.rank, neighbours(comm)
    size, unit = counts[rank], units[rank]
    with make(size, "u1", disp_unit=unit) as win:
        raw(win)[:] = 0
        comm.Barrier()
        last = counts[right] // units[right] - 1
        with win.lock(right):
            win.put(np.full(units[right], rank + 1, "u1"), right, last)
            with pytest.raises(rma.RangeError):
                win.put(np.full(units[right] + 1, 99, "u1"), right, last)
            with pytest.raises(rma.RangeError):
                win.put(np.full(1, 99, "u1"), right, last + 1)
        comm.Barrier()
        expected = np.zeros(size, "u1")
        at = (size // unit - 1) * unit
        expected[at : at + unit] = left + 1
        assert np.array_equal(raw(win), expected)


def test_the_displacement_unit_is_the_element_size_by_default(make, comm):
    right, left = neighbours(comm)
    with make(16, "f8") as win:
        win.local[:] = 0
        comm.Barrier()
        with win.lock(right):
            win.put(np.array([comm.rank + 0.5]), right, 3)
        comm.Barrier()
        assert win.local[3] == left + 0.5
        assert np.count_nonzero(win.local) == 1


def test_allocated_memory_is_aligned_to_a_cache_line(make_one):
    for shape in (1, 100, 5000):
        with make_one(shape) as win:
            assert win.local.ctypes.data % 64 == 0


def test_two_windows_on_one_communicator_are_apart(make, comm):
    right, left = neighbours(comm)
    with make(32) as first, make(32) as second:
        comm.Barrier()
        with first.lock(right), second.lock(right):
            first.put(pattern(comm.rank, 32), right, 0)
            second.put(pattern(comm.rank + 100, 32), right, 0)
            first.notify(right, notification=1)
            second.notify(right, notification=2)
            first.flush(right)
            second.flush(right)
        comm.Barrier()
        assert raw(first).tobytes() == pattern(left, 32).tobytes()
        assert raw(second).tobytes() == pattern(left + 100, 32).tobytes()
        assert (first.notify_count(1), first.notify_count(2)) == (1, 0)
        assert (second.notify_count(1), second.notify_count(2)) == (0, 1)


def test_two_windows_may_expose_the_same_memory(comm):
    right, left = neighbours(comm)
    memory = np.zeros(16, "u1")
    with (
        rma.Window.create(memory, comm=comm) as first,
        rma.Window.create(memory[8:], comm=comm) as second,
    ):
        comm.Barrier()
        with first.lock(right), second.lock(right):
            first.put(np.full(8, comm.rank + 1, "u1"), right, 0)
            second.put(np.full(8, comm.rank + 101, "u1"), right, 0)
            first.flush(right)
            second.flush(right)
        comm.Barrier()
        assert (memory[:8] == left + 1).all()
        assert (memory[8:] == left + 101).all()


def test_the_ranks_of_a_sub_communicator_are_its_own(kind, comm):
    # The key turns the order of the ranks around.
    sub = comm.Split(comm.rank % 2, -comm.rank)
    try:
        with open_window(8, "u8", kind=kind, comm=sub) as win:
            assert (win.rank, win.size) == (sub.rank, sub.size)
            right, left = neighbours(sub)
            sub.Barrier()
            with win.lock(right):
                win.put(np.array([comm.rank], "u8"), right, 0)
            sub.Barrier()
            assert win.local[0] == sub.allgather(comm.rank)[left]
    finally:
        sub.Free()


def test_windows_of_overlapping_communicators_work_side_by_side(make_one, kind, comm):
    pair = comm.Split(comm.rank // 2, comm.rank)
    alone = comm.Split(comm.rank, 0)
    try:
        with (
            open_window(8, kind=kind, comm=alone) as own,
            open_window(8, kind=kind, comm=pair) as shared,
            make_one(8) as world,
        ):
            assert (own.size, shared.size, world.size) == (1, pair.size, comm.size)
            assert_usable(world, comm)
            assert_usable(shared, pair)
            assert_usable(own, alone)
    finally:
        pair.Free()
        alone.Free()


def test_the_communicator_may_be_freed_before_the_window(kind, comm):
    copy = comm.Dup()
    with open_window(64, kind=kind, comm=copy) as win:
        copy.Free()
        assert_usable(win, comm)
        win.fence()
        win.fence(rma.NOSUCCEED)


def test_a_window_on_comm_self_has_one_rank(comm):
    mpi = pytest.importorskip("mpi4py.MPI")
    with rma.Window.allocate(8, comm=mpi.COMM_SELF) as win:
        assert (win.rank, win.size) == (0, 1)
        with win.lock(0):
            win.put(pattern(comm.rank, 8), 0, 0)
        assert raw(win).tobytes() == pattern(comm.rank, 8).tobytes()


def test_transports_names_one_transport_for_each_rank(make, kind, comm):
    with make(8) as win:
        expected = [kind.transports] * comm.size
        expected[comm.rank] = "self"
        assert list(win.transports) == expected


def test_memory_is_reserved_at_creation_or_refused_there(comm):
    # A limit on the size of files stands for a full /dev/shm: no signal at the first touch.
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if comm.rank == comm.size - 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        with pytest.raises(rma.RmaError) as caught:
            rma.Window.allocate(8 << 20, comm=comm)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    if comm.rank == comm.size - 1:
        assert type(caught.value) is rma.ResourceError
    with rma.Window.allocate(8 << 20, comm=comm) as win:
        assert_usable(win, comm)
