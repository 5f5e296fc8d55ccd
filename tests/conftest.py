# SPDX-License-Identifier: Apache-2.0
"""What holds for every test: deadline, one outcome for all ranks, ledger of skips, leak check."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from importlib.util import find_spec

import pytest

from support.agreement import Agreement
from support.hang import HangGuard, seconds_for
from support.leaks import Holdings, wait_until_clean
from support.ledger import Ledger, reason_of

GUARD = pytest.StashKey[HangGuard]()
RANKS = pytest.StashKey[Agreement]()
LEDGER = pytest.StashKey[Ledger]()


def pytest_configure(config: pytest.Config) -> None:
    guard = HangGuard()
    under_mpi = bool(config.getoption("--with-mpi") or config.getoption("--only-mpi"))
    ranks = Agreement(enabled=under_mpi, guard=guard)
    config.stash[GUARD], config.stash[RANKS] = guard, ranks
    config.stash[LEDGER] = Ledger(ranks.rank)
    config.pluginmanager.register(SkipRecorder(config.stash[LEDGER]))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if find_spec("torch") is None:
        skip = pytest.mark.skip(reason="could not import 'torch'")
        for item in items:
            if item.get_closest_marker("torch"):
                item.add_marker(skip)


class SkipRecorder:
    """Hand every skip, of a test or of a whole file, to the ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self.ledger.add(report.nodeid, reason_of(report.longrepr))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self.ledger.add(report.nodeid, reason_of(report.longrepr))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    guard = item.config.stash[GUARD]
    guard.arm(seconds_for(item))
    try:
        return (yield)
    finally:
        guard.disarm()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if item.get_closest_marker("mpi"):
        item.config.stash[RANKS].settle(report)
    return report


@pytest.fixture(autouse=True)
def no_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests marked ``leaks`` end with the descriptors, threads and names they began with."""
    if request.node.get_closest_marker("leaks") is None:
        yield
        return
    ranks = request.config.stash[RANKS]
    ranks.barrier()
    before = Holdings.now()
    yield
    leaked = wait_until_clean(before)
    assert not leaked, "left behind: " + "; ".join(leaked)
