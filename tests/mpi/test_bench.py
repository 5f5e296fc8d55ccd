# SPDX-License-Identifier: Apache-2.0
"""The benchmark measures, on the MPI library at hand and with any number of ranks."""

import pytest

from hixl_rma.bench import catalogue, crowd, worker
from hixl_rma.bench.results import merge
from hixl_rma.bench.timing import Effort

pytestmark = pytest.mark.mpi(min_size=2)

QUICK = Effort(seconds=0.005, fewest=2, most=3, turn_us=50)
PATTERNS = (
    "put + flush/*/8 B/asleep",
    "fetch_and_op + flush/allocated/8 B/asleep",
    "fence",
    "one way",
    "4 origins",
    "passive lock*/allocated/8 B/computing",
)


def test_every_kind_of_row_comes_out_with_figures_of_both_sides(comm):
    rows = [row for row in catalogue.select(catalogue.rows(4096), PATTERNS) if row.ranks == 2]
    found = []
    here = worker.measure(rows, 4096, QUICK, found.append)
    assert here == (comm.rank == 0)
    if not here:
        assert not found
        return
    lines = [merge(row, [one for one in found if not one.again]) for row in rows]
    assert {one.key for one in found} == {row.key for row in rows}
    for line in lines:
        assert not line.note, line
        assert line.ours > 0, line
        assert line.p99 > 0, line
        assert line.mpi is None or line.mpi > 0, line
        if line.row.name.startswith("put + flush"):
            assert line.ratio_limit > 0, line
        if "origins" not in line.row.name:
            assert line.ratio_mpi > 0, line


@pytest.mark.parametrize("scenario", crowd.SCENARIOS)
def test_a_crowd_of_any_size_comes_out_with_exact_sums(comm, scenario):
    (row,) = [row for row in catalogue.rows() if row.scenario == scenario]
    everybody = crowd.Crowd(worker.world(), comm)
    samples = everybody.measure(row, QUICK)
    everybody.close()
    assert set(samples.turns) == {"ours", "mpi"}
    assert all(time_us > 0 for times in samples.turns.values() for time_us in times)
