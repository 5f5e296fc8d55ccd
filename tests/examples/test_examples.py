# SPDX-License-Identifier: Apache-2.0
"""Every example runs, and prints what it should; so does the first listing of the README."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import hixl_rma as rma
from hixl_rma.config import describe_environment
from hixl_rma.errors import by_code
from support.launcher import run_program

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"

Lines = Callable[[int, int], list[str]]
#: What a rank prints in a job of that many, by example.
EXPECTED: dict[str, Lines] = {}


def prints(expected: Lines) -> Lines:
    """Register what the example of the function's name prints."""
    EXPECTED[expected.__name__] = expected
    return expected


def on_rank_0(*lines: str) -> Lines:
    """Return the lines of an example in which only rank 0 speaks."""
    return lambda rank, _size: list(lines) if rank == 0 else []


@prints
def put(rank: int, size: int) -> list[str]:
    left = (rank - 1) % size
    return [f"rank {rank}: [-1.0, {left + 0.25}, {left + 0.5}, -1.0]"]


@prints
def get(rank: int, size: int) -> list[str]:
    values = [100 * ((rank + 1) % size) + at for at in (4, 5, 6)]
    return [f"rank {rank}: {values}, sum {sum(values)}"]


@prints
def blocks(rank: int, size: int) -> list[str]:
    first = 10 * ((rank - 1) % size)
    rows = [-1, -1, first + 1, -1, -1, first, -1, first + 2]
    return [f"rank {rank}: {rows}, read back: True"]


@prints
def strided(rank: int, size: int) -> list[str]:
    def grid(origin: int) -> list[list[int]]:
        n = 10 * (origin + 1)
        return [
            [n + 1, n + 2, 0, n, 0],
            [0, 0, 0, n + 3, 0],
            [n + 7, n + 8, 0, n + 6, 0],
        ]

    last = grid(rank)[-1][::-1]  # this rank wrote to the right one
    return [f"rank {rank}: {grid((rank - 1) % size)}, last row of the right: {last}"]


@prints
def accumulate(rank: int, size: int) -> list[str]:
    if rank > 0:
        return []
    return [f"{10_000 * size} values counted, exact: True", "maximum 999, exact: True"]


EXPECTED["counter"] = on_rank_0("200 tasks, each done once: True")


@prints
def compare_and_swap(rank: int, size: int) -> list[str]:
    return on_rank_0(f"one leader: True, value {3**size}")(rank, size)


@prints
def get_accumulate(rank: int, size: int) -> list[str]:
    lengths = [size] * 3
    return on_rank_0(f"queues of length {lengths}, every place taken once: True")(rank, size)


EXPECTED["halo_fence"] = on_rank_0("100 steps, heat 1000.000, same as one process: True")


@prints
def post_start(rank: int, size: int) -> list[str]:
    return [f"rank {rank}: {[[number, (rank - 1) % size] for number in range(4)]}"]


@prints
def locks(rank: int, size: int) -> list[str]:
    account = [50 * size, -50 * size]
    mine = account if rank == 0 else [0, 0]
    return [f"rank {rank}: balanced True, rank 0 has {account}, I have {mine}"]


@prints
def flushes(rank: int, size: int) -> list[str]:
    left = (rank - 1) % size
    first = [(other - 1) % size for other in range(size)]
    return [f"rank {rank}: {[left, left, left + 100, left + 100]}, first of each: {first}"]


@prints
def rput_rget(rank: int, size: int) -> list[str]:
    right = (rank + 1) % size
    means = [float(block + 10 * right) for block in range(6)]
    after = [-1.0, 2 * (1.5 + 10 * rank)]
    return [f"rank {rank}: {means}, then {after}, old {1.5 + 10 * right}"]


@prints
def create(rank: int, size: int) -> list[str]:
    value = (rank - 1) % size + 1
    return [f"rank {rank}: {[value] * 4}, {4 * value} in all, same memory: True"]


@prints
def uneven(rank: int, size: int) -> list[str]:
    mine = [n + 1 if n < size else 0 for n in range(4)] if rank == size - 1 else []
    refused = ", refused: RangeError" if size > 1 else ""
    return [f"rank {rank}: {mine}{refused}"]


@prints
def remote_view(rank: int, size: int) -> list[str]:
    written = [float((rank - 1) % size + 1)] * 3
    transports = tuple("self" if other == rank else "shm" for other in range(size))
    return [f"rank {rank}: {[[0.0] * 3, written]} by {transports}, notified 1"]


@prints
def notify(rank: int, _size: int) -> list[str]:
    return [
        f"rank {rank}: 3 pending, values 18 and 0, None",
        f"rank {rank}: reset took 2 with 42",
    ]


@prints
def notify_ring(rank: int, size: int) -> list[str]:
    return on_rank_0(f"after 3 rounds every element is [{3 * size}]")(rank, size)


@prints
def notify_fan_in(rank: int, size: int) -> list[str]:
    if rank > 0:
        return []
    return [
        f"{32 * size} bytes, rows {[other + 0.5 for other in range(size)]}",
        f"sources of the last ones: {list(range(size))}",
    ]


@prints
def notify_blocks(rank: int, size: int) -> list[str]:
    first = 10 * ((rank - 1) % size) + 1
    values = [float(first + n) for n in range(4)]
    return [f"rank {rank}: 4096 bytes, blocks {values}, then {values[0]}"]


@prints
def notify_pipeline(rank: int, size: int) -> list[str]:
    first = 100 * ((rank - 1) % size)
    return [f"rank {rank}: items {first} to {first + 11}, in order: True"]


@prints
def notify_select(rank: int, _size: int) -> list[str]:
    return [f"rank {rank}: hello and 5 notifications"]


@prints
def notify_async(rank: int, _size: int) -> list[str]:
    return [f"rank {rank}: {[45 + 10 * job + 1000 * rank for job in range(4)]}"]


@prints
def timeouts(rank: int, _size: int) -> list[str]:
    return [f"rank {rank}: the error names what was missing: True; then came 2"]


def readme(rank: int, size: int) -> list[str]:
    left = float((rank - 1) % size)
    return [f"{left} {left} Notification(id=7, source={int(left)}, count=1, value=1)"]


def run(ranks: int, program: Path) -> subprocess.CompletedProcess[str]:
    return run_program(ranks, [sys.executable, str(program)], cwd=ROOT, timeout=50)


def check(done: subprocess.CompletedProcess[str], ranks: int, expected: Lines) -> None:
    # The package's name before that of a class is a matter of taste of the Python in use.
    printed = done.stdout.replace("hixl_rma.Notification", "Notification").splitlines()
    wanted = [line for rank in range(ranks) for line in expected(rank, ranks)]
    assert sorted(printed) == sorted(wanted)
    assert done.returncode == 0


def jobs() -> list[tuple[str, int]]:
    """Return each example with two ranks, and with one or three in turn."""
    return [
        (name, ranks)
        for number, name in enumerate(EXPECTED)
        for ranks in (2, 1 if number % 2 else 3)
    ]


@pytest.mark.parametrize(("name", "ranks"), jobs())
def test_an_example_prints_what_it_should(name, ranks):
    check(run(ranks, EXAMPLES / f"{name}.py"), ranks, EXPECTED[name])


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_the_example_readme_prints_what_it_should(ranks):
    check(run(ranks, EXAMPLES / "readme.py"), ranks, readme)


# ------------------------------------------------------------------------------------ the README


def listings() -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_the_first_listing_of_the_readme_prints_what_it_should(ranks, tmp_path):
    program = tmp_path / "listing.py"
    program.write_text(listings()[0], encoding="utf-8")
    check(run(ranks, program), ranks, readme)


def test_the_first_listing_of_the_readme_is_an_example():
    example = (EXAMPLES / "readme.py").read_text(encoding="utf-8")
    assert example.endswith(f"# fmt: off\n{listings()[0]}")


@pytest.mark.parametrize("number", range(1, len(listings())))
def test_every_other_listing_of_the_readme_runs_on_one_rank(number, tmp_path):
    program = tmp_path / "listing.py"
    program.write_text(listings()[number], encoding="utf-8")
    done = run(1, program)
    assert done.returncode == 0, done.stdout


def test_every_file_that_the_documents_name_exists():
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
    missing = []
    for page in pages:
        text = page.read_text(encoding="utf-8")
        links = re.findall(r"\]\((?!https?:|#)([^)#]+)", text)
        missing += [f"{page.name}: {link}" for link in links if not (page.parent / link).exists()]
    assert not missing


def test_the_readme_lists_the_variables_that_are_read():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for variable in describe_environment({}):
        cells = (f"`{variable.name}`", variable.takes, variable.default, variable.meaning)
        assert f"| {' | '.join(cells)} |" in text


def test_the_readme_links_every_example():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [name for name in EXPECTED if f"(examples/{name}.py)" not in text] == []


def test_the_page_of_errors_lists_every_class_with_its_builtin():
    text = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    for cls in by_code.values():
        builtins = [base.__name__ for base in cls.__bases__ if base is not rma.RmaError]
        assert f"| `{cls.__name__}` | {''.join(builtins)} |".replace("|  |", "| |") in text


# ------------------------------------------------------------------------------------ what is shown


def test_every_example_is_listed_here():
    found = {path.stem for path in EXAMPLES.glob("*.py")}
    assert found == {*EXPECTED, "readme", "pd_generate"}


def test_an_example_is_short():
    lines = {name: (EXAMPLES / f"{name}.py").read_text().count("\n") for name in EXPECTED}
    assert {name: count for name, count in lines.items() if count >= 80} == {}


def test_every_verb_of_a_window_is_shown_by_an_example():
    text = "\n".join((EXAMPLES / f"{name}.py").read_text() for name in EXPECTED)
    verbs = {
        name
        for name, member in inspect.getmembers(rma.Window)
        if not name.startswith("_") and callable(member)
    }
    used = set(re.findall(r"\b(?:win|window|Window)\.(\w+)\(", text))
    # `tensor` is a view for torch, which no default environment has.
    assert verbs - used - {"tensor"} == set()
