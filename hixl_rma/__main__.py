# SPDX-License-Identifier: Apache-2.0
"""The command ``hixl-rma``, also ``python -m hixl_rma``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from hixl_rma import __version__, info
from hixl_rma.bench import command as bench

__all__ = ["main"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hixl-rma", description="One-sided communication for Python: tools."
    )
    parser.add_argument("--version", action="version", version=f"hixl-rma {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    command = commands.add_parser(
        "info",
        help="what works on this machine, what does not, why, and what mends it",
        description="Tell what works on this machine, what does not, why, and what mends it. "
        "Exit status 1 means that no window can be made (with --env: that a variable is wrong).",
    )
    command.add_argument(
        "--env", action="store_true", help="list the variables of the environment instead"
    )
    command.add_argument("--json", action="store_true", help="print JSON, for programs")
    command = commands.add_parser(
        "bench",
        help="measure windows beside MPI's own and beside memcpy",
        description="Measure windows beside MPI's own and beside what the memory allows, in turns. "
        "Under mpirun the world's first two ranks measure, else it starts two itself. Exit status "
        "1 means that a goal was missed or that a row with a goal was not measured.",
    )
    bench.add_arguments(command)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Parameters
    ----------
    arguments : sequence of str or None, default None
        The arguments; None takes those of the process.

    Returns
    -------
    int
        The exit status: 0, 1 when something is wrong, 2 when the arguments are.
    """
    options = _parser().parse_args(arguments)
    try:
        if options.command == "bench":
            status = bench.run(options)
        elif options.env:
            status = info.print_environment(as_json=options.json)
        else:
            status = info.print_info(as_json=options.json)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


if __name__ == "__main__":
    sys.exit(main())
