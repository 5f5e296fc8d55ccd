# SPDX-License-Identifier: Apache-2.0
"""The command by itself: it starts the ranks, reports, and its exit status is that of the goals."""

import json
import subprocess
import sys


def test_the_benchmark_alone_starts_its_ranks_and_ends_as_its_goals_say(tmp_path):
    path = tmp_path / "bench.json"
    rows = ["--rows", "put + flush/*/8 B/*", "--rows", "sleeping waiter"]
    command = [sys.executable, "-m", "hixl_rma", "bench", "--quick", "--max", "8"]
    ended = subprocess.run(
        [*command, *rows, "--json", str(path)],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    found = json.loads(path.read_text())
    assert len(found["rows"]) == 5
    assert all(row["ours"] is not None for row in found["rows"]), found["rows"]
    assert found["mpi"][0].startswith("Open MPI")
    assert found["problems"] == []
    assert ended.returncode == (0 if found["met"] else 1), ended.stderr
    assert "put + flush" in ended.stdout
    assert "load before" in found["machine"]
