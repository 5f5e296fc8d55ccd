# SPDX-License-Identifier: Apache-2.0
"""The picture: bandwidth over size, and every goal with what was reached."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hixl_rma.bench.catalogue import ALLOCATED, ASLEEP, CREATED, SPINNING, size_text
from hixl_rma.bench.results import Line

__all__ = ["can_plot", "draw"]

_NAMES = ("put + flush", "get + flush")


def can_plot() -> bool:
    """Tell whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def _curve(axes: Any, lines: Sequence[Line], figure: str, label: str, style: str) -> None:  # noqa: ANN401
    points = [(line.row.size, getattr(line, figure)) for line in lines]
    known = [(size, size / us / 1000) for size, us in points if us]
    if known:
        axes.plot(*zip(*known, strict=True), style, label=label, markersize=4)


def draw(lines: Sequence[Line], path: Path, title: str) -> None:
    """Draw bandwidth over size, for each operation and kind of window, and store it as PNG.

    Parameters
    ----------
    lines : sequence of Line
        The table.
    path : Path
        Where to.
    title : str
        What stands above it.
    """
    figure_class = importlib.import_module("matplotlib.figure").Figure
    figure = figure_class(figsize=(12, 8), layout="constrained")
    figure.suptitle(title)
    grid = figure.subplots(2, 2, sharex=True)
    for name, row in zip(_NAMES, grid, strict=True):
        for window, axes in zip((ALLOCATED, CREATED), row, strict=True):
            of_window = [li for li in lines if (li.row.name, li.row.window) == (name, window)]
            asleep = [line for line in of_window if line.row.state == ASLEEP]
            spinning = [line for line in of_window if line.row.state == SPINNING]
            limit = "memcpy" if window == ALLOCATED else "process_vm calls"
            _curve(axes, asleep, "limit", f"{limit}, one thread", "k--")
            _curve(axes, asleep, "ours", "hixl_rma, target asleep", "C0o-")
            _curve(axes, spinning, "ours", "hixl_rma, target spinning", "C0x:")
            _curve(axes, asleep, "mpi", "best MPI, target asleep", "C1o-")
            _curve(axes, spinning, "mpi", "best MPI, target spinning", "C1x:")
            sizes = sorted({line.row.size for line in of_window})
            axes.set(title=f"{name}, {window}", xscale="log", yscale="log", ylabel="GB/s")
            axes.set_xticks(sizes, [size_text(size) for size in sizes], rotation=60)
            axes.minorticks_off()
            axes.grid(alpha=0.3)
            if sizes:
                axes.legend(fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
