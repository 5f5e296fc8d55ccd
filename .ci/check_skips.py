# SPDX-License-Identifier: Apache-2.0
"""Print the skips that the lanes wrote down; fail on one that expected_skips.toml does not cover.

Reads build/skips or the folder given: *.jsonl from pytest, <lane>/*.xml from GoogleTest.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from support.ledger import Skip, read_expectations, read_skips, unexpected  # noqa: E402


def native_skips(folder: Path) -> list[Skip]:
    """Read the skips in GoogleTest's XML results; the name of their folder is the lane."""
    found = []
    for path in sorted(folder.glob("*/*.xml")):
        for case in ElementTree.parse(path).iter("testcase"):
            skipped = case.find("skipped")
            if skipped is not None:
                # "file:line\nSkipped\nreason": GoogleTest puts the place first.
                reason = (skipped.get("message") or "").strip().splitlines()
                name = f"{case.get('classname')}.{case.get('name')}"
                found.append(Skip(name, reason[-1] if reason else "", path.parent.name))
    return found


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "skips"
    expectations = read_expectations(ROOT / ".ci" / "expected_skips.toml")
    skips = read_skips(folder) + native_skips(folder)
    bad = set(unexpected(skips, expectations))
    expected: Counter[tuple[str, str]] = Counter()
    for skip in set(skips) - bad:
        why = next(entry.why for entry in expectations if entry.covers(skip))
        expected[skip.lane, why] += 1
    for (lane, why), count in sorted(expected.items()):
        print(f"skipped as expected: {lane}: {count} tests: {why}")
    for skip in sorted(bad, key=lambda s: (s.lane, s.test)):
        print(f"skipped and NOT expected: {skip.lane}: {skip.test}: {skip.reason}")
    print(f"check_skips: {sum(expected.values())} expected skips, {len(bad)} unexpected")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
