# SPDX-License-Identifier: Apache-2.0
"""The table, and the JSON."""

from __future__ import annotations

import importlib
import importlib.util
import math
import shutil
import sys
from collections import Counter
from collections.abc import Mapping, Sequence

from hixl_rma.bench.catalogue import size_text
from hixl_rma.bench.goals import Verdict
from hixl_rma.bench.results import Line, failed

__all__ = ["as_json", "number", "print_table", "summary", "table"]

_STYLES = {
    Verdict.MET: "green",
    Verdict.AT_LIMIT: "cyan",
    Verdict.MISSED: "red",
    Verdict.NOT_MEASURED: "yellow",
}
_HEAD = (
    "what",
    "window",
    "size",
    "target",
    "ours",
    "p99",
    "best MPI",
    "limit",
    "x MPI",
    "of limit",
    "of 2 thr.",
    "goal",
    "",
)
_NUMBERS = range(4, 11)


def number(value: float | None) -> str:
    """Return a number with three significant digits; "-" for None."""
    if value is None or math.isnan(value):
        return "-"
    if math.isinf(value):
        return "stalls"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"


def _figure(value: float | None, unit: str) -> str:
    return number(value) if unit == "us" or value is None else f"{number(value)} {unit}"


def _cells(line: Line) -> list[str]:
    row, unit = line.row, line.row.unit
    stalls = line.ratio_mpi == math.inf
    verdict = line.verdict.value + (", 2nd try" if line.again else "")
    if line.note and (line.ours is None or row.absent):
        verdict = f"{verdict or 'not measured'}: {line.note}"
    return [
        row.name,
        row.window if row.state or row.size else "",
        size_text(row.size),
        row.state,
        _figure(line.ours, unit),
        _figure(line.p99, unit),
        "stalls" if stalls else _figure(line.mpi, unit),
        number(line.limit),
        "" if stalls or unit == "%" else number(line.ratio_mpi),
        number(line.ratio_limit),
        number(line.ratio_limit2),
        row.goal_text,
        verdict,
    ]


def table(lines: Sequence[Line]) -> list[str]:
    """Return the table as lines of text, its head first."""
    cells = [list(_HEAD), *(_cells(line) for line in lines)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(_HEAD))]
    return [
        "  ".join(
            text.rjust(width) if column in _NUMBERS else text.ljust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]


def summary(lines: Sequence[Line]) -> str:
    """Return the last line of the report."""
    counts = Counter(line.verdict for line in lines if line.row.goal is not None)
    absent = sum(1 for line in lines if line.row.absent)
    again = sum(1 for line in lines if line.again)
    text = ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in _STYLES)
    return (
        f"goals: {text}; {again} rows measured a second time because they had missed; "
        f"{absent} rows that this version cannot measure"
    )


def print_table(lines: Sequence[Line]) -> None:
    """Print the table, in colours on a terminal where rich is installed."""
    text = table(lines)
    rich = sys.stdout.isatty() and importlib.util.find_spec("rich") is not None
    if not rich:
        print("\n".join(text))
    else:
        console = importlib.import_module("rich.console").Console(
            highlight=False, width=max(shutil.get_terminal_size().columns, len(text[0]))
        )
        console.print(text[0], style="bold", markup=False)
        for line, row in zip(lines, text[1:], strict=True):
            console.print(row, style=_STYLES.get(line.verdict, ""), markup=False, soft_wrap=True)
    print("times in us, medians over turns; x MPI: times as fast as the best MPI; of limit: share")
    print(f"reached, with one thread and with two.\n{summary(lines)}")
    for line in failed(lines):
        print(f"  {line.verdict.value}: {line.row.key}  (goal {line.row.goal_text})")


def as_json(
    lines: Sequence[Line],
    facts: Mapping[str, object],
    libraries: Sequence[str],
    problems: Sequence[str],
    peers: Sequence[Mapping[str, object]] = (),
) -> dict[str, object]:
    """Return everything for programs."""
    return {
        "machine": dict(facts),
        "mpi": list(libraries),
        "problems": list(problems),
        "met": not failed(lines),
        "rows": [line.as_json() for line in lines],
        "peers": list(peers),
    }
