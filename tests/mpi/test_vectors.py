# SPDX-License-Identifier: Apache-2.0
"""put_v and get_v move any number of pieces in one call."""

import numpy as np
import pytest

import hixl_rma as rma
from support.windows import assert_bytes, neighbours, pattern, raw, rounds

pytestmark = pytest.mark.mpi

BLOCK = 48


def table(memory, pieces, unit=1):
    """Return the N x 3 form of pieces (start, disp, nbytes) of a local array."""
    base = memory.ctypes.data
    return np.array([(base + start, disp // unit, n) for start, disp, n in pieces], "u8")


def scattered(count, seed=0):
    """Blocks of a local array in one order, to be placed in another, with gaps."""
    order = np.random.default_rng(seed).permutation(count)
    return [(i * BLOCK, int(place) * (BLOCK + 16) + 8, BLOCK) for i, place in enumerate(order)]


def as_list(memory, pieces):
    return [(memory[start : start + n], disp) for start, disp, n in pieces]


@pytest.mark.parametrize("form", ["list", "tuple", "table"])
@pytest.mark.parametrize("count", [1, 2, 1024, 1025, 3000])
def test_every_piece_is_placed_and_no_byte_between(make, comm, form, count):
    right, left = neighbours(comm)
    pieces = scattered(count)
    with make(count * (BLOCK + 16) + 8) as win:
        raw(win)[:] = 0x5A
        comm.Barrier()
        memory = pattern(comm.rank, count * BLOCK)
        ops = table(memory, pieces) if form == "table" else as_list(memory, pieces)
        with win.lock(right):
            win.put_v(tuple(ops) if form == "tuple" else ops, right)
            win.flush(right)
            memory[:] = 0
        comm.Barrier()
        expected = np.full(raw(win).size, 0x5A, "u1")
        theirs = pattern(left, count * BLOCK)
        for start, disp, n in pieces:
            expected[disp : disp + n] = theirs[start : start + n]
        assert_bytes(raw(win), expected, f"put_v of {count} pieces")
        comm.Barrier()
        back = np.zeros(count * BLOCK + 2, "u1")
        inner = back[1:-1]
        with win.lock(right):
            win.get_v(table(inner, pieces) if form == "table" else as_list(inner, pieces), right)
            win.flush(right)
        assert_bytes(inner, pattern(comm.rank, count * BLOCK), f"get_v of {count} pieces")
        assert (back[0], back[-1]) == (0, 0)
        comm.Barrier()


def test_pieces_have_sizes_of_their_own(make, comm):
    right, left = neighbours(comm)
    sizes = [0, 1, 3, 0, 4095, 4096, 4097, 17, 65_536, 2, 0]
    total = sum(sizes)
    with make(total) as win:
        comm.Barrier()
        memory = pattern(comm.rank, total)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        pieces = [(int(start), int(start), n) for start, n in zip(starts, sizes, strict=False)]
        with win.lock(right):
            win.put_v(table(memory, pieces), right)
        comm.Barrier()
        assert_bytes(raw(win), pattern(left, total))


def test_neighbouring_pieces_give_what_one_put_gives(make, comm):
    right, left = neighbours(comm)
    with make(64 * 1024) as win:
        comm.Barrier()
        memory = pattern(comm.rank, 64 * 1024)
        with win.lock(right):
            win.put_v(table(memory, [(i * 1024, i * 1024, 1024) for i in range(64)]), right)
        comm.Barrier()
        assert_bytes(raw(win), pattern(left, 64 * 1024))


def test_displacements_of_pieces_count_units_of_the_target(make, comm):
    right, left = neighbours(comm)
    with make(64, "f8") as win:
        win.local[:] = 0
        comm.Barrier()
        values = np.arange(8.0) + 100 * comm.rank
        with win.lock(right):
            win.put_v([(values[:4], 10), (values[4:], 20)], right)
            win.put_v(table(values.view("u1"), [(0, 240, 16)], unit=8), right)
        comm.Barrier()
        theirs = np.arange(8.0) + 100 * left
        expected = np.zeros(64)
        expected[10:14], expected[20:24], expected[30:32] = theirs[:4], theirs[4:], theirs[:2]
        assert_bytes(win.local, expected)


def test_pieces_may_be_strided_and_of_different_types(make, comm):
    right, left = neighbours(comm)

    def pieces(seed):
        numbers = np.arange(40, dtype="i4").reshape(5, 8) + seed
        return [
            (numbers[::2, ::3], 0),
            (numbers.astype("f8").T, 100),
            (bytes([seed] * 5), 500),
            (np.float32(seed), 600),
        ]

    with make(700) as win:
        raw(win)[:] = 0
        comm.Barrier()
        with win.lock(right):
            win.put_v(pieces(comm.rank), right)
        comm.Barrier()
        expected = np.zeros(700, "u1")
        for origin, disp in pieces(left):
            content = memoryview(origin).tobytes()
            expected[disp : disp + len(content)] = np.frombuffer(content, "u1")
        assert_bytes(raw(win), expected)


def test_the_same_piece_twice_is_the_piece_once(make, comm):
    right, left = neighbours(comm)
    with make(64) as win:
        comm.Barrier()
        memory = pattern(comm.rank, 64)
        with win.lock(right):
            win.put_v(table(memory, [(0, 0, 64), (0, 0, 64)]), right)
            win.put_v([(memory, 0), (memory, 0)], right)
        comm.Barrier()
        assert_bytes(raw(win), pattern(left, 64))


def test_of_overlapping_pieces_one_wins_in_each_byte(make, comm):
    right, _ = neighbours(comm)
    with make(3000) as win:
        raw(win)[:] = 0x5A
        comm.Barrier()
        with win.lock(right):
            win.put_v([(np.full(2000, k, "u1"), 100 * k) for k in range(10)], right)
        comm.Barrier()
        memory = raw(win)
        for byte in range(2900):
            writers = [k for k in range(10) if 100 * k <= byte < 100 * k + 2000]
            assert memory[byte] in writers
        assert (memory[2900:] == 0x5A).all()


def test_an_empty_batch_is_complete_at_once(make, comm):
    right, _ = neighbours(comm)
    with make(8) as win:
        comm.Barrier()
        with win.lock(right):
            for empty in ([], (), np.empty((0, 3), "u8")):
                win.put_v(empty, right)
                win.get_v(empty, right)
                win.put_notify_v(empty, right, notification=3)
        assert comm.allgather(win.size)[0] == comm.size
        note = win.wait_notify(3, count=3, timeout=20)
        assert note.count == 3


BAD_TABLES = {
    "two columns": (lambda m: np.zeros((4, 2), "u8"), rma.ArgumentError),
    "four columns": (lambda m: np.zeros((4, 4), "u8"), rma.ArgumentError),
    "one axis": (lambda m: np.zeros(3, "u8"), rma.ArgumentError),
    "three axes": (lambda m: np.zeros((1, 3, 1), "u8"), rma.ArgumentError),
    "signed": (lambda m: table(m, [(0, 0, 8)]).astype("i8"), rma.ArgumentTypeError),
    "floats": (lambda m: table(m, [(0, 0, 8)]).astype("f8"), rma.ArgumentTypeError),
    "32 bits": (lambda m: np.zeros((1, 3), "u4"), rma.ArgumentTypeError),
    "other byte order": (lambda m: np.zeros((1, 3), ">u8"), rma.ArgumentTypeError),
    "table beyond the end": (lambda m: table(m, [(0, 0, 8), (0, 60, 8)]), rma.RangeError),
    "huge displacement": (lambda m: table(m, [(0, 0, 8), (0, (1 << 64) - 8, 8)]), rma.RangeError),
    "huge length": (lambda m: table(m, [(0, 0, 8), (0, 0, (1 << 64) - 1)]), rma.RangeError),
}

BAD_LISTS = {
    "no list": (5, rma.ArgumentTypeError),
    "nothing": (None, rma.ArgumentTypeError),
    "text": ("pieces", rma.ArgumentTypeError),
    "pieces that are no pairs": ([5], rma.ArgumentTypeError),
    "piece of one": ([(bytearray(8),)], rma.ArgumentError),
    "piece of three": ([(bytearray(8), 0, 8)], rma.ArgumentError),
    "negative displacement": ([(bytearray(8), 0), (bytearray(8), -1)], rma.RangeError),
    "displacement beyond 64 bits": ([(bytearray(8), 0), (bytearray(8), 1 << 64)], rma.RangeError),
    "beyond the end": ([(bytearray(8), 0), (bytearray(8), 57)], rma.RangeError),
    "bool displacement": ([(bytearray(8), 0), (bytearray(8), True)], rma.ArgumentTypeError),
    "float displacement": ([(bytearray(8), 0), (bytearray(8), 1.0)], rma.ArgumentTypeError),
    "no displacement": ([(bytearray(8), 0), (bytearray(8), None)], rma.ArgumentTypeError),
    "no buffer": ([(bytearray(8), 0), (None, 8)], rma.ArgumentTypeError),
}


@pytest.mark.parametrize("case", [*BAD_TABLES, *BAD_LISTS])
def test_one_bad_piece_refuses_the_whole_call_and_its_notification(make, comm, case):
    right, _ = neighbours(comm)
    memory = np.full(64, 99, "u1")
    if case in BAD_TABLES:
        factory, expected = BAD_TABLES[case]
        ops = factory(memory)
    else:
        ops, expected = BAD_LISTS[case]
    with make(64) as win:
        raw(win)[:] = pattern(comm.rank, 64)
        comm.Barrier()
        with win.lock(right):
            with pytest.raises(expected) as caught:
                win.put_v(ops, right)
            assert type(caught.value) is expected
            with pytest.raises(expected):
                win.get_v(ops, right)
            with pytest.raises(expected):
                win.put_notify_v(ops, right, notification=1)
        comm.Barrier()
        assert_bytes(raw(win), pattern(comm.rank, 64))
        assert (memory == 99).all()
        assert win.notify_count(1) == 0


def test_many_batches_follow_one_another(make, comm):
    right, left = neighbours(comm)
    count = 64
    with make(count * 64) as win:
        memory = np.zeros(count * 64, "u1")
        ops = table(memory, [(i * 64, (count - 1 - i) * 64, 64) for i in range(count)])
        for number in range(rounds(100, comm)):
            memory[:] = (number + comm.rank) % 251
            with win.lock(right, exclusive=False):
                win.put_v(ops, right)
                win.flush(right)
                memory[:] = 255
            comm.Barrier()
            assert (raw(win) == (number + left) % 251).all()
            comm.Barrier()
