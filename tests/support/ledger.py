# SPDX-License-Identifier: Apache-2.0
"""The skip ledger: every skipped test is written down, and only expected skips pass.

Each process writes a file of its own under ``build/skips``: one JSON object a line with the test,
the reason and the lane. ``.ci/check_skips.py`` compares them with ``.ci/expected_skips.toml``.
"""

from __future__ import annotations

import fnmatch
import json
import os
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from support.machine import CONDITIONS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER_VARIABLE = "HIXL_RMA_TEST_SKIP_LEDGER"
LANE_VARIABLE = "HIXL_RMA_TEST_LANE"


@dataclass(frozen=True)
class Skip:
    """One skipped test."""

    test: str
    reason: str
    lane: str


@dataclass(frozen=True)
class Expectation:
    """Skips that may happen: shell patterns of test, reason and lanes, and why that is right."""

    test: str
    reason: str
    lanes: tuple[str, ...]
    why: str
    unless: str = ""
    """Name of an environment variable: where it is set, this entry does not count."""
    where: str = ""
    """Key of `machine.CONDITIONS`: the entry counts only where that holds."""

    def covers(self, skip: Skip) -> bool:
        """Tell whether this entry allows a skip."""
        if self.unless and os.environ.get(self.unless):
            return False
        if not CONDITIONS[self.where]():
            return False
        return (
            fnmatch.fnmatchcase(skip.test, self.test)
            and fnmatch.fnmatchcase(skip.reason, self.reason)
            and any(fnmatch.fnmatchcase(skip.lane, lane) for lane in self.lanes)
        )


def lane() -> str:
    """Return the name of the lane that this process runs for."""
    return os.environ.get(LANE_VARIABLE, "by hand")


class Ledger:
    """Write the skips of this process. Nothing is written unless the lane names a folder."""

    def __init__(self, rank: int) -> None:
        folder = os.environ.get(FOLDER_VARIABLE)
        self._path = Path(folder) / f"{lane()}-rank{rank}-{os.getpid()}.jsonl" if folder else None

    def add(self, test: str, reason: str) -> None:
        """Record one skip."""
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(Skip(test, reason, lane()))) + "\n")


def reason_of(longrepr: object) -> str:
    """Return the reason in a pytest skip report, without pytest's own prefix."""
    text = str(longrepr[2]) if isinstance(longrepr, tuple) else str(longrepr)
    return text.removeprefix("Skipped: ")


def read_skips(folder: Path) -> list[Skip]:
    """Read every ledger file of a folder."""
    return [
        Skip(**json.loads(line))
        for path in sorted(folder.glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]


def read_expectations(path: Path) -> list[Expectation]:
    """Read ``expected_skips.toml``; an entry without a reason why is a KeyError.

    So is one for a condition that does not exist.
    """
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("skip", [])
    for entry in entries:
        CONDITIONS[entry.get("where", "")]
    return [
        Expectation(
            test=entry["test"],
            reason=entry["reason"],
            lanes=tuple(entry["lanes"]),
            why=entry["why"].strip(),
            unless=entry.get("unless", ""),
            where=entry.get("where", ""),
        )
        for entry in entries
    ]


def unexpected(skips: Iterable[Skip], expectations: Iterable[Expectation]) -> list[Skip]:
    """Return the skips that no expectation covers."""
    allowed = list(expectations)
    return [skip for skip in skips if not any(entry.covers(skip) for entry in allowed)]
