# SPDX-License-Identifier: Apache-2.0
"""Random window programs give the same on our window, in a plain model and on MPI.Win.

A failure names the seed: HIXL_RMA_TEST_SEED=<seed> HIXL_RMA_TEST_PROGRAMS=1 runs that program
alone; another base seed and more programs make a longer search.
"""

import os

import numpy as np
import pytest

from support.executors import window_executor
from support.models import Model
from support.programs import generate
from support.windows import KINDS

pytestmark = [pytest.mark.mpi, pytest.mark.deadline(120)]

BASE = int(os.environ.get("HIXL_RMA_TEST_SEED", "0"))
PROGRAMS = int(os.environ.get("HIXL_RMA_TEST_PROGRAMS", "60"))
GROUPS = min(6, PROGRAMS)


def assert_same(actual, wanted, what):
    if not np.array_equal(actual, wanted):
        places = np.flatnonzero(actual != wanted).tolist()
        message = f"{what}: {actual.tolist()}, not {wanted.tolist()}; they differ at {places}"
        raise AssertionError(message)


def check_phase(where, outcome, rank, memory, results):
    assert_same(memory, outcome.memory[rank], f"{where}: memory of rank {rank}")
    assert len(results) == len(outcome.results[rank]), where
    for number, (result, wanted) in enumerate(zip(results, outcome.results[rank], strict=True)):
        assert_same(result, wanted, f"{where}: result {number} of rank {rank}")


def run_on_ours(program, outcomes, kind, comm):
    with window_executor(program, kind, comm) as executor:
        for number, (phase, outcome) in enumerate(zip(program.phases, outcomes, strict=True)):
            memory, results, notes = executor.phase(phase, outcome.notes[comm.rank])
            where = f"{program}, phase {number} ({phase.sync}) on {kind}"
            check_phase(where, outcome, comm.rank, memory, results)
            assert notes == outcome.notes[comm.rank], where


def run_on_mpi(program, outcomes, comm):
    from support.oracle import oracle_executor

    with oracle_executor(program, comm) as executor:
        for number, (phase, outcome) in enumerate(zip(program.phases, outcomes, strict=True)):
            memory, results = executor.phase(phase)
            where = f"{program}, phase {number} ({phase.sync}) on MPI.Win"
            check_phase(where, outcome, comm.rank, memory, results)


@pytest.mark.parametrize("group", range(GROUPS))
def test_random_programs_give_what_the_model_and_mpi_give(comm, group):
    for seed in range(BASE + group, BASE + PROGRAMS, GROUPS):
        program = generate(seed, comm.size)
        print(program)
        outcomes = Model(program).run()
        run_on_mpi(program, outcomes, comm)
        run_on_ours(program, outcomes, KINDS[seed % len(KINDS)], comm)


def test_every_kind_of_window_runs_the_same_program(comm):
    program = generate(BASE + 1000, comm.size)
    outcomes = Model(program).run()
    for kind in KINDS:
        run_on_ours(program, outcomes, kind, comm)
