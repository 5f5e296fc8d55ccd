# SPDX-License-Identifier: Apache-2.0
"""The command: choose rows, have them measured, report; under mpirun as a rank of the world."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from hixl_rma.bench import catalogue, launch, machine, peers, plot, report
from hixl_rma.bench.catalogue import CROWD, KIB, MIB, PAIR, Row
from hixl_rma.bench.results import Line, Measurement, failed, merge
from hixl_rma.bench.timing import Effort
from hixl_rma.bootstrap import choose

__all__ = ["add_arguments", "run"]

_UNITS = {"K": KIB, "M": MIB, "G": 1 << 30}
_QUICK = Effort(seconds=0.03, fewest=5, most=40, turn_us=200)
_SETUP_S, _ROW_S = 60.0, 12.0  # of a job: to start, and for each row


def _size(text: str) -> int:
    number, unit = (text[:-1], _UNITS[text[-1]]) if text[-1:] in _UNITS else (text, 1)
    if not number.isdigit() or int(number) * unit < 8:
        msg = f"{text!r}: bytes, 8 or more, with K, M or G behind them if you like"
        raise argparse.ArgumentTypeError(msg)
    return int(number) * unit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument(
        "--rows",
        action="append",
        default=[],
        metavar="PATTERN",
        help="only rows whose key holds this shell pattern; may be repeated",
    )
    parser.add_argument(
        "--list", action="store_true", help="list the rows with their goals, and end"
    )
    parser.add_argument("--quick", action="store_true", help="few turns: a look, not a result")
    parser.add_argument(
        "--max",
        type=_size,
        default=catalogue.MAX_SIZE,
        metavar="SIZE",
        help="largest operation, such as 64M (default 256M)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write figures and machine facts")
    parser.add_argument(
        "--png", type=Path, metavar="FILE", help="draw bandwidth over size (extra bench)"
    )
    parser.add_argument(
        "--also",
        action="append",
        type=Path,
        default=[],
        metavar="PYTHON",
        help="measure with the MPI library beside this interpreter too; may be repeated",
    )
    parser.add_argument(
        "--peers",
        type=Path,
        metavar="PYTHON",
        help="measure NIXL, where this interpreter has it, beside us",
    )
    parser.add_argument("--hand-over", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--ranks", type=int, help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Run the command.

    Returns
    -------
    int
        0; 1 when a goal is missed or a row with a goal was not measured; 2 when nothing could be
        started.
    """
    rows = catalogue.select(catalogue.rows(options.max), options.rows)
    if options.list:
        for row in rows:
            print(f"{row.key:<70} {row.absent or row.goal_text}".rstrip())
        return 0
    if not rows:
        print("no row has such a name: see --list", file=sys.stderr)
        return 2
    if options.png and not plot.can_plot():
        print("--png takes matplotlib: pip install 'hixl-rma[bench]'", file=sys.stderr)
        return 2
    if choose.launcher(os.environ):
        return _as_rank(options, rows)
    return _as_parent(options, rows)


def _effort(options: argparse.Namespace) -> Effort:
    return _QUICK if options.quick else Effort()


def _as_rank(options: argparse.Namespace, rows: Sequence[Row]) -> int:
    from hixl_rma.bench import worker  # here: it brings numpy's and MPI's start-up

    before = machine.load()
    found: list[Measurement] = []

    def take(measurement: Measurement) -> None:
        found.append(measurement)
        _tell(measurement)
        if options.hand_over:
            with options.hand_over.open("a") as file:
                file.write(json.dumps(worker.as_fields(measurement)) + "\n")

    mine = [row for row in rows if options.ranks in (None, row.ranks)]
    here = worker.measure(mine, options.max, _effort(options), take)
    if not here or options.hand_over:
        return 0
    return _finish(options, rows, found, before, [])


def _tell(found: Measurement) -> None:
    """Say on standard error how far it is."""
    word = "again: " if found.again else ""
    print(f"{found.library}: {word}{found.key} {found.note}".rstrip(), file=sys.stderr, flush=True)


def _arguments(options: argparse.Namespace) -> list[str]:
    """Return the arguments that the ranks are started with."""
    patterns = [word for pattern in options.rows for word in ("--rows", pattern)]
    return [*patterns, "--max", str(options.max), *(["--quick"] if options.quick else [])]


def _as_parent(options: argparse.Namespace, rows: Sequence[Row]) -> int:
    before = machine.load()
    problems: list[str] = []
    found: list[Measurement] = []
    for python in [Path(sys.executable), *options.also]:
        try:
            launcher = launch.MpiLauncher.beside(python)
        except FileNotFoundError as error:
            problems.append(str(error))
            continue
        for ranks in (PAIR, CROWD):
            count = sum(row.ranks == ranks and not row.absent for row in rows)
            if not count:
                continue
            arguments = [*_arguments(options), "--ranks", str(ranks)]
            job = launch.Job(launcher, ranks, arguments, _SETUP_S + _ROW_S * count)
            found += job.run()
            if job.problem:
                problems.append(job.problem)
    if not found:
        print("\n".join(problems), file=sys.stderr)
        return 2
    return _finish(options, rows, found, before, problems)


def _last(found: Iterable[Measurement]) -> list[Measurement]:
    """Return of each row and library what was measured last."""
    return list({(one.key, one.library): one for one in found}.values())


def _without_crowd(row: Row) -> Row:
    """Return a row for more ranks than there were as one that could not be measured."""
    if row.ranks == PAIR or not choose.launcher(os.environ):
        return row
    return dataclasses.replace(row, absent=f"takes {row.ranks} ranks")


def _finish(
    options: argparse.Namespace,
    rows: Sequence[Row],
    found: Sequence[Measurement],
    before: str,
    problems: list[str],
) -> int:
    last = _last(found)
    known = {one.key for one in last}
    rows = [row if row.key in known else _without_crowd(row) for row in rows]
    lines = [merge(row, last) for row in rows]
    libraries = list(dict.fromkeys(one.library for one in last))
    beside = peers.measure(options.peers, quick=options.quick) if options.peers else []
    facts = {**machine.facts(), "load before": before, "load after": machine.load()}
    _print(lines, facts, libraries, problems)
    if options.peers:
        peers.print_table(beside)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(
            report.as_json(
                lines, facts, libraries, problems, [dataclasses.asdict(one) for one in beside]
            ),
            indent=1,
        )
        options.json.write_text(text + "\n")
    if options.png:
        title = f"hixl_rma beside {' and '.join(libraries)}: {facts['processor']}"
        plot.draw(lines, options.png, title)
    return 1 if failed(lines) or problems else 0


def _print(
    lines: Sequence[Line],
    facts: dict[str, object],
    libraries: Sequence[str],
    problems: Sequence[str],
) -> None:
    print(
        f"{facts['processor']}, {facts['processors']} processors, kernel {facts['kernel']}, "
        f"load {facts['load before']} before and {facts['load after']} after; "
        f"{' and '.join(libraries)}\n"
    )
    report.print_table(lines)
    for problem in problems:
        print(f"  problem: {problem}")
