# SPDX-License-Identifier: Apache-2.0
"""The random window programs do not depend on timing, and cover what they are meant to cover."""

import numpy as np
import pytest

from support.models import Model
from support.programs import SYNCS, generate

SEEDS = range(60)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_the_outcome_does_not_depend_on_the_order_of_the_ranks(size):
    for seed in SEEDS:
        program = generate(seed, size)
        forwards, backwards = Model(program).run(), Model(program).run(reversed(range(size)))
        for one, other in zip(forwards, backwards, strict=True):
            assert one.notes == other.notes
            for rank in range(size):
                assert np.array_equal(one.memory[rank], other.memory[rank]), program
                for left, right in zip(one.results[rank], other.results[rank], strict=True):
                    assert np.array_equal(left, right), program


def test_a_seed_gives_the_same_program_again():
    assert generate(5, 3) == generate(5, 3)
    assert generate(5, 3) != generate(6, 3)


def test_the_programs_contain_every_verb_and_synchronisation():
    programs = [generate(seed, 2) for seed in SEEDS]
    phases = [phase for program in programs for phase in program.phases]
    verbs = {op.verb for phase in phases for ops in phase.ops for op in ops}
    assert verbs == {
        *("put", "get", "put_v", "get_v", "accumulate", "get_accumulate", "fetch_and_op"),
        *("compare_and_swap", "increment", "flush"),
        *("notify", "put_notify", "put_notify_v", "get_notify"),
    }
    assert {phase.sync for phase in phases} == set(SYNCS)
    assert any(0 in program.counts for program in programs)
    assert any(op.step > 1 for phase in phases for ops in phase.ops for op in ops)
    assert any(op.stride < 0 for phase in phases for ops in phase.ops for op in ops)
    assert any(op.as_request for phase in phases for ops in phase.ops for op in ops)
