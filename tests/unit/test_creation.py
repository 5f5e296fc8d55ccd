# SPDX-License-Identifier: Apache-2.0
"""What ranks decide together while a window is made."""

import os

import pytest

from hixl_rma.config import Config
from hixl_rma.creation import _processors, _spin_seconds


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    monkeypatch.delenv("OMPI_COMM_WORLD_LOCAL_SIZE", raising=False)
    monkeypatch.delenv("MPI_LOCALNRANKS", raising=False)


def masks(*processors):
    return [sum(1 << p for p in own).to_bytes(16, "little") for own in processors]


def test_ranks_bound_to_a_processor_each_spin():
    assert _spin_seconds(Config(), masks([0], [1])) == 50e-6
    assert _spin_seconds(Config(), masks([0], [1], [64], [65])) == 50e-6


def test_ranks_that_share_too_few_processors_sleep_at_once():
    assert _spin_seconds(Config(), masks([0], [0])) == 0
    assert _spin_seconds(Config(), masks([0, 1], [0, 1], [0, 1])) == 0
    assert _spin_seconds(Config(), masks([0, 1], [0, 1])) == 50e-6


def test_other_ranks_of_the_host_count_too(monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "3")
    assert _spin_seconds(Config(), masks([0], [1])) == 0


def test_a_spin_that_is_set_wins():
    assert _spin_seconds(Config(spin_us=7), masks([0], [0])) == pytest.approx(7e-6)


def test_the_mask_names_the_processors_of_this_process():
    mask = int.from_bytes(_processors(), "little")
    assert {p for p in range(mask.bit_length()) if mask >> p & 1} == os.sched_getaffinity(0)
