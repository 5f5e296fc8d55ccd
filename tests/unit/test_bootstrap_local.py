# SPDX-License-Identifier: Apache-2.0
"""The local bootstrap among threads and among processes: exchange, deadlines, death, bad input."""

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest

from hixl_rma.bootstrap import MAX_BYTES, Deadline, LocalBootstrap
from hixl_rma.bootstrap.frames import Kind, Link
from hixl_rma.errors import (
    ArgumentError,
    ArgumentTypeError,
    BootstrapError,
    ClosedError,
    ForkedError,
    PeerLostError,
    ProtocolError,
    RmaError,
    RmaTimeoutError,
)

LONG = 20  # [s] a deadline that no passing test comes near
JOIN = """
import sys
from hixl_rma.bootstrap import Deadline, LocalBootstrap
bootstrap = LocalBootstrap(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
def exchange(data=b""):
    return bootstrap.allgather(data, Deadline(20))
"""


@pytest.fixture
def job():
    return f"test-{uuid.uuid4()}"


@pytest.fixture
def run(job):
    """Run one function in a thread for each rank; return what each returned or raised."""
    with contextlib.ExitStack() as stack:

        def run(size, function, *ranks):
            outcomes = [None] * size

            def rank_main(rank):
                bootstrap = stack.enter_context(LocalBootstrap(job, rank, size))
                try:
                    outcomes[rank] = function(bootstrap)
                except RmaError as error:
                    outcomes[rank] = error

            threads = [
                threading.Thread(target=rank_main, args=(rank,)) for rank in ranks or range(size)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            assert not any(thread.is_alive() for thread in threads)
            return outcomes

        yield run


@pytest.fixture
def start(job):
    """Start a process as one rank: start(rank, size, code) -> Popen."""
    with contextlib.ExitStack() as stack:

        def start(rank, size, code):
            process = subprocess.Popen(
                [sys.executable, "-c", JOIN + code, job, str(rank), str(size)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            stack.callback(process.communicate)
            stack.callback(process.kill)
            return process

        yield start


# -- one rank -----------------------------------------------------------------------------------


def test_a_single_rank_gets_its_own_bytes_without_a_socket():
    with LocalBootstrap() as bootstrap:
        assert (bootstrap.rank, bootstrap.size, bootstrap.name) == (0, 1, "local")
        assert bootstrap.allgather(b"mine") == [b"mine"]
        assert bootstrap.allgather(bytearray(b"mine"), Deadline(0)) == [b"mine"]


def test_a_single_rank_that_gave_too_much_may_go_on():
    with LocalBootstrap() as bootstrap:
        with pytest.raises(ArgumentError, match="67108865"):
            bootstrap.allgather(bytes(MAX_BYTES + 1))
        assert bootstrap.allgather(b"") == [b""]


def test_a_closed_bootstrap_says_so_and_may_be_closed_again():
    bootstrap = LocalBootstrap()
    bootstrap.close()
    bootstrap.close()
    assert bootstrap.closed
    with pytest.raises(ClosedError):
        bootstrap.allgather(b"")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((1, 0, 1), ArgumentTypeError),
        (("a", 0.0, 1), ArgumentTypeError),
        (("a", True, 2), ArgumentTypeError),
        (("a", 0, "2"), ArgumentTypeError),
        (("a", 0, 0), ArgumentError),
        (("a", -1, 2), ArgumentError),
        (("a", 2, 2), ArgumentError),
        (("a", 0, 4097), ArgumentError),
        (("", 0, 2), ArgumentError),
    ],
)
def test_parameters_that_are_not_possible_are_refused(arguments, error):
    with pytest.raises(error):
        LocalBootstrap(*arguments)


# -- the exchange -------------------------------------------------------------------------------


@pytest.mark.leaks
@pytest.mark.parametrize("size", [2, 3, 5])
def test_every_rank_gets_the_bytes_of_all_by_rank(run, size):
    def work(bootstrap):
        return [
            bootstrap.allgather(
                bytes([bootstrap.rank]) * (7 * bootstrap.rank + turn), Deadline(LONG)
            )
            for turn in range(20)
        ]

    expected = [[bytes([rank]) * (7 * rank + turn) for rank in range(size)] for turn in range(20)]
    assert run(size, work) == [expected] * size


def test_large_pieces_of_all_ranks_at_once_do_not_block_each_other(run):
    def work(bootstrap):
        pieces = bootstrap.allgather(bytes([bootstrap.rank]) * (8 << 20), Deadline(LONG))
        return [(len(piece), piece[:1], piece[-1:]) for piece in pieces]

    expected = [(8 << 20, bytes([rank]), bytes([rank])) for rank in range(3)]
    assert run(3, work) == [expected] * 3


def test_ranks_may_come_in_any_order(job):
    outcomes = {}

    def work(rank):
        with LocalBootstrap(job, rank, 3) as bootstrap:
            outcomes[rank] = bootstrap.allgather(b"%d" % rank, Deadline(LONG))

    threads = []
    for rank in (2, 1, 0):
        threads.append(threading.Thread(target=work, args=(rank,)))
        threads[-1].start()
        time.sleep(0.05)
    for thread in threads:
        thread.join(LONG)
    assert outcomes == {rank: [b"0", b"1", b"2"] for rank in range(3)}


def test_processes_meet_by_the_variable_alone(job):
    code = (
        "from hixl_rma.bootstrap import resolve, Deadline\n"
        "bootstrap = resolve(None)\n"
        "print(bootstrap.allgather(b'%d' % bootstrap.rank, Deadline(20)))"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, "HIXL_RMA_LOCAL_JOB": f"{job}:{rank}:2"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    assert [process.communicate(timeout=60)[0] for process in processes] == ["[b'0', b'1']\n"] * 2


@pytest.mark.leaks
def test_a_name_can_be_used_again_by_the_next_job(run):
    for _ in range(20):
        found = run(2, lambda bootstrap: len(bootstrap.allgather(b"", Deadline(LONG))))
        assert found == [2, 2]


# -- deadlines ----------------------------------------------------------------------------------


@pytest.mark.parametrize("present", [(0, 1), (1, 2)])
def test_a_rank_that_never_joins_is_a_time_out_at_the_others(run, present):
    begin = time.monotonic()
    outcomes = run(3, lambda bootstrap: bootstrap.allgather(b"", Deadline(0.3)), *present)
    assert time.monotonic() - begin < 5
    first = outcomes[present[0]]
    assert isinstance(first, RmaTimeoutError)
    assert ("for rank 2" if 0 in present else "for rank 0") in str(first)


def test_a_rank_that_does_not_call_is_a_time_out_at_the_root_which_tells_the_others(run):
    called = threading.Event()

    def work(bootstrap):
        bootstrap.allgather(b"", Deadline(LONG))
        if bootstrap.rank == 2:
            called.wait(LONG)
            return "did not call"
        try:
            return bootstrap.allgather(b"", Deadline(0.3 if bootstrap.rank == 0 else LONG))
        finally:
            if bootstrap.rank == 1:
                called.set()

    root, leaf, _ = run(3, work)
    assert isinstance(root, RmaTimeoutError)
    assert "waited 0.3 s for rank 2" in str(root)
    assert isinstance(leaf, BootstrapError)
    assert "rank 0 gave up" in str(leaf)


def test_after_a_time_out_the_bootstrap_says_that_it_cannot_be_used(run):
    def work(bootstrap):
        with pytest.raises(RmaTimeoutError):
            bootstrap.allgather(b"", Deadline(0.1))
        with pytest.raises(BootstrapError, match=r"cannot be used any more.*waited 0.1 s"):
            bootstrap.allgather(b"", Deadline(LONG))
        return "both"

    assert run(2, work, 0)[0] == "both"


def test_a_rank_with_another_count_is_told_why_it_may_not_join(job):
    refusals = []

    def stranger():
        with LocalBootstrap(job, 1, 3) as bootstrap:
            try:
                bootstrap.allgather(b"", Deadline(LONG))
            except BootstrapError as error:
                refusals.append(str(error))

    thread = threading.Thread(target=stranger)
    thread.start()
    with (
        LocalBootstrap(job, 0, 2) as bootstrap,
        pytest.raises(RmaTimeoutError, match="refused: rank 1 counts 3"),
    ):
        bootstrap.allgather(b"", Deadline(0.5))
    thread.join(LONG)
    assert refusals
    assert "rank 1 counts 3 ranks in this job, rank 0 counts 2" in refusals[0]


def test_a_rank_that_joins_twice_is_refused_and_the_job_goes_on(job):
    outcomes = {}

    def work(key, rank):
        with LocalBootstrap(job, rank, 3) as bootstrap:
            try:
                outcomes[key] = bootstrap.allgather(b"", Deadline(LONG))
            except BootstrapError as error:
                outcomes[key] = str(error)

    twins = [threading.Thread(target=work, args=(key, 1)) for key in ("one", "two")]
    root = threading.Thread(target=work, args=("root", 0))
    for thread in (*twins, root):
        thread.start()
    while not outcomes:
        time.sleep(0.01)
    work("last", 2)
    for thread in (*twins, root):
        thread.join(LONG)
    refused = outcomes.pop("one") if isinstance(outcomes["one"], str) else outcomes.pop("two")
    assert "rank 1 has joined already" in refused
    assert list(outcomes.values()) == [[b""] * 3] * 3


def test_a_second_root_is_an_error(job):
    def wait_for_leaf():
        with contextlib.suppress(RmaTimeoutError), LocalBootstrap(job, 0, 2) as first:
            first.allgather(b"", Deadline(1))

    thread = threading.Thread(target=wait_for_leaf)
    thread.start()
    with LocalBootstrap(job, 0, 2) as second:
        while second._address()[1:] not in Path("/proc/net/unix").read_text():
            time.sleep(0.01)
        with pytest.raises(BootstrapError, match="another process is rank 0"):
            second.allgather(b"", Deadline(LONG))
    thread.join(LONG)


# -- signals and death --------------------------------------------------------------------------


def test_a_signal_ends_the_wait_within_a_tenth_of_a_second(start):
    process = start(
        0,
        2,
        "import time\n"
        "print('ready', flush=True)\n"
        "try:\n"
        "    exchange()\n"
        "except KeyboardInterrupt:\n"
        "    print(time.monotonic(), flush=True)\n"
        "try:\n"
        "    exchange()\n"
        "except Exception as error:\n"
        "    print(error, flush=True)\n",
    )
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.3)
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    caught, again = process.communicate(timeout=30)[0].splitlines()
    assert float(caught) - begin < 0.2
    assert "KeyboardInterrupt ended an exchange" in again


@pytest.mark.parametrize("victim", [0, 2])
def test_a_rank_that_is_killed_is_lost_for_all_others_with_its_number(start, victim):
    report = "exchange()\nprint('joined', flush=True)\n"
    others = [rank for rank in range(3) if rank != victim]
    processes = {
        rank: start(
            rank,
            3,
            f"{report}\nfor turn in range(2):\n"
            "    try:\n"
            "        exchange()\n"
            "    except Exception as error:\n"
            "        print(type(error).__name__, error.peer_rank, flush=True)\n",
        )
        for rank in others
    }
    dying = start(victim, 3, f"{report}import time\ntime.sleep(60)\n")
    assert dying.stdout.readline() == "joined\n"
    dying.kill()
    for process in processes.values():
        assert process.communicate(timeout=30)[0].splitlines() == [
            "joined",
            f"PeerLostError {victim}",
            f"PeerLostError {victim}",
        ]


def test_a_rank_that_closed_its_bootstrap_is_lost_for_the_others(run):
    def work(bootstrap):
        bootstrap.allgather(b"", Deadline(LONG))
        if bootstrap.rank == 1:
            bootstrap.close()
            return None
        return bootstrap.allgather(b"", Deadline(LONG))

    root, _, leaf = run(3, work)
    for error in (root, leaf):
        assert isinstance(error, PeerLostError)
        assert error.peer_rank == 1


def test_a_forked_child_may_not_use_it_and_does_not_keep_it_open(start):
    keeper = start(
        1,
        2,
        "import os, time\n"
        "exchange()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    try:\n"
        "        exchange()\n"
        "    except Exception as error:\n"
        "        os.write(1, (type(error).__name__ + '\\n').encode())\n"
        "    time.sleep(20)\n"
        "os.write(1, b'%d\\n' % child)\n"
        "time.sleep(60)\n",
    )
    root = start(
        0, 2, "exchange()\ntry:\n    exchange()\nexcept Exception as e:\n    print(repr(e))\n"
    )
    lines = {keeper.stdout.readline().strip(), keeper.stdout.readline().strip()}
    assert ForkedError.__name__ in lines
    (child,) = lines - {ForkedError.__name__}
    try:
        keeper.kill()
        assert "PeerLostError" in root.communicate(timeout=30)[0]
    finally:
        os.kill(int(child), signal.SIGKILL)


# -- what arrives at the socket -----------------------------------------------------------------


def header(magic=b"HXRB", version=1, kind=1, sequence=0, length=0):
    return struct.pack("<4sHHIQ", magic, version, kind, sequence, length)


@pytest.fixture
def pair():
    one, other = socket.socketpair()
    link = Link(one, limit=1000)
    yield link, other
    link.close()
    other.close()


def test_a_frame_that_comes_in_pieces_is_put_together(pair):
    link, other = pair
    for byte in header(kind=4, sequence=9, length=2) + b"ab":
        assert not link.frames
        other.sendall(bytes([byte]))
        link.read()
    (frame,) = link.frames
    assert (frame.kind, frame.sequence, frame.payload) == (Kind.DATA, 9, b"ab")


def test_frames_before_the_end_of_the_stream_are_delivered(pair):
    link, other = pair
    other.sendall(header(kind=5, length=1) + b"x" + header(kind=5, length=3) + b"y")
    other.close()
    link.read()
    link.read()
    assert link.lost
    assert [frame.payload for frame in link.frames] == [b"x"]


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (header(magic=b"HTTP"), "does not speak"),
        (header(version=2), "speaks version 2.*this side version 1"),
        (header(kind=99), "kind 99"),
        (header(length=1001), "1001 bytes, where 1000"),
        (header(length=(1 << 64) - 1), "where 1000"),
    ],
)
def test_what_is_no_frame_is_a_protocol_error(pair, bad, text):
    link, other = pair
    other.sendall(bad)
    link.read()
    assert isinstance(link.error, ProtocolError)
    assert link.lost
    with pytest.raises(ProtocolError, match=text):
        raise link.error


@pytest.mark.parametrize("noise", [b"", b"x" * 100, header(kind=4), header(version=7, length=24)])
def test_noise_at_the_listener_does_not_disturb_the_job(job, noise):
    outcomes = {}

    def work(rank):
        with LocalBootstrap(job, rank, 2) as bootstrap:
            outcomes[rank] = bootstrap.allgather(b"%d" % rank, Deadline(LONG))

    root = threading.Thread(target=work, args=(0,))
    root.start()
    with socket.socket(socket.AF_UNIX) as stranger:
        address = LocalBootstrap(job, 1, 2)._address()
        while True:
            try:
                stranger.connect(address)
                break
            except ConnectionRefusedError:
                time.sleep(0.01)
        stranger.sendall(noise)
        work(1)
    root.join(LONG)
    assert outcomes == {0: [b"0", b"1"], 1: [b"0", b"1"]}


def test_too_much_data_is_an_argument_error_and_ends_the_wait_of_the_others(run):
    def work(bootstrap):
        return bootstrap.allgather(bytes(MAX_BYTES + 1) if bootstrap.rank else b"", Deadline(LONG))

    root, leaf = run(2, work)
    assert isinstance(leaf, ArgumentError)
    assert isinstance(root, BootstrapError)
    assert "rank 1 gave up: an exchange takes" in str(root)
