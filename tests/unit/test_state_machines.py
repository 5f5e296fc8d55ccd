# SPDX-License-Identifier: Apache-2.0
"""Any order of calls: state machines of hypothesis against small models."""

import numpy as np
import pytest

pytest.importorskip("hypothesis")

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

import hixl_rma as rma
from hixl_rma.bootstrap import LocalBootstrap


class Notifications(RuleBasedStateMachine):
    """Send, look, take and reset in any order; a dictionary is the model."""

    ids = st.integers(0, 4)
    values = st.integers(0, 20) | st.sampled_from([2**63, 2**64 - 1])

    @initialize()
    def create(self):
        self.window = rma.Window.allocate(8, comm=LocalBootstrap(), notifications=5)
        self.window.lock_all()
        self.count = dict.fromkeys(range(5), 0)
        self.value = dict.fromkeys(range(5), 0)

    def teardown(self):
        if hasattr(self, "window"):
            self.window.unlock_all()
            self.window.free()

    def take(self, number, count):
        self.count[number] -= count
        value, self.value[number] = self.value[number], 0
        return (number, 0, count, value)

    @rule(number=ids, value=values, verb=st.sampled_from(["notify", "put", "put_v", "get"]))
    def send(self, number, value, verb):
        note = {"notification": number, "value": value}
        if verb == "notify":
            self.window.notify(0, **note)
        elif verb == "put":
            self.window.put_notify(bytes(8), 0, 0, **note)
        elif verb == "put_v":
            self.window.put_notify_v([(bytes(4), 0), (bytes(4), 4)], 0, **note)
        else:
            self.window.get_notify(bytearray(8), 0, 0, **note)
        self.count[number] += 1
        self.value[number] = (self.value[number] + value) % 2**64

    @rule(number=ids, count=st.integers(1, 4))
    def test(self, number, count):
        note = self.window.test_notify(number, count=count)
        if self.count[number] < count:
            assert note is None
        else:
            assert note == self.take(number, count)

    @rule(number=ids, count=st.integers(1, 4))
    def wait(self, number, count):
        if self.count[number] < count:
            with pytest.raises(rma.NotifyTimeoutError):
                self.window.wait_notify(number, count=count, timeout=0)
        else:
            assert self.window.wait_notify(number, count=count, timeout=5) == self.take(
                number, count
            )

    @rule(number=ids)
    def look(self, number):
        note = self.window.test_notify(number, consume=False)
        assert (note is None) == (self.count[number] == 0)
        assert note is None or note.value == self.value[number]

    @rule(numbers=st.sets(ids, min_size=1), count=st.integers(1, 3))
    def wait_for_some(self, numbers, count):
        ready = sorted(n for n in numbers if self.count[n] >= count)
        if not ready:
            with pytest.raises(rma.NotifyTimeoutError):
                self.window.wait_notify_some(sorted(numbers), count=count, timeout=0)
        else:
            notes = self.window.wait_notify_some(sorted(numbers), count=count, timeout=5)
            assert sorted(notes) == [self.take(n, count) for n in ready]

    @rule(numbers=st.sets(ids, min_size=1), count=st.integers(1, 3))
    def wait_for_all(self, numbers, count):
        if any(self.count[n] < count for n in numbers):
            with pytest.raises(rma.NotifyTimeoutError):
                self.window.wait_notify_all(sorted(numbers), count=count, timeout=0)
        else:
            notes = self.window.wait_notify_all(sorted(numbers), count=count, timeout=5)
            assert notes == [self.take(n, count) for n in sorted(numbers)]

    @precondition(lambda self: any(self.count.values()))
    @rule()
    def wait_for_any(self):
        note = self.window.wait_notify(timeout=5)
        assert self.count[note.id] >= 1
        assert note == self.take(note.id, 1)

    @rule(number=ids)
    def reset(self, number):
        wanted = (self.count[number], self.value[number])
        self.count[number] = self.value[number] = 0
        assert tuple(self.window.reset_notify(number)) == wanted

    @invariant()
    def counts_are_those_of_the_model(self):
        if hasattr(self, "window"):
            assert {n: self.window.notify_count(n) for n in range(5)} == self.count


class Epochs(RuleBasedStateMachine):
    """Openers, closers and operations in any order; what is legal is a small automaton."""

    @initialize()
    def create(self):
        self.window = rma.Window.allocate(8, "i8", comm=LocalBootstrap())
        self.model = np.zeros(8, "i8")
        self.window.local[:] = 0
        self.access, self.exposed, self.used, self.number = "none", False, False, 0

    def teardown(self):
        if not hasattr(self, "window"):
            return
        if self.access == "lock":
            self.window.unlock(0)
        elif self.access == "lock_all":
            self.window.unlock_all()
        elif self.access == "start":
            self.window.complete()
        elif self.access == "fence":
            self.window.fence(rma.NOSUCCEED)
        if self.exposed:
            if self.access != "start":
                self.window.start([0], timeout=5)
                self.window.complete(timeout=5)
            self.window.wait(timeout=5)
        self.window.free()

    def attempt(self, legal, call):
        if legal:
            call()
        else:
            with pytest.raises(rma.EpochError):
                call()
        return legal

    def free_to_open(self):
        return self.access == "none" or (self.access == "fence" and not self.used)

    @rule(exclusive=st.booleans())
    def lock(self, exclusive):
        legal = self.free_to_open() and not self.exposed
        if self.attempt(legal, lambda: self.window.lock(0, exclusive=exclusive)):
            self.access = "lock"

    @rule()
    def lock_all(self):
        if self.attempt(self.free_to_open() and not self.exposed, self.window.lock_all):
            self.access = "lock_all"

    @rule()
    def unlock(self):
        if self.attempt(self.access == "lock", lambda: self.window.unlock(0)):
            self.access = "none"

    @rule()
    def unlock_all(self):
        if self.attempt(self.access == "lock_all", self.window.unlock_all):
            self.access = "none"

    @rule(last=st.booleans())
    def fence(self, last):
        legal = self.access in ("none", "fence") and not self.exposed
        if self.attempt(legal, lambda: self.window.fence(rma.NOSUCCEED if last else 0)):
            self.access, self.used = ("none" if last else "fence"), False

    @precondition(lambda self: self.access != "fence")
    @rule()
    def post(self):
        legal = not self.exposed and self.access in ("none", "start")
        if self.attempt(legal, lambda: self.window.post([0])):
            self.exposed = True

    @precondition(lambda self: self.exposed or not self.free_to_open())
    @rule()
    def start(self):
        if self.attempt(self.free_to_open(), lambda: self.window.start([0], timeout=5)):
            self.access = "start"

    @rule()
    def complete(self):
        if self.attempt(self.access == "start", self.window.complete):
            self.access = "none"
            self.window.wait(timeout=5)
            self.exposed = False

    @precondition(lambda self: not self.exposed)
    @rule()
    def wait_without_post(self):
        self.attempt(False, self.window.wait)
        self.attempt(False, self.window.test)

    @rule(place=st.integers(0, 7))
    def put(self, place):
        self.number += 1
        value = np.array([self.number])
        if self.attempt(self.access != "none", lambda: self.window.put(value, 0, place)):
            self.model[place] = self.number
            self.used = True

    @rule(place=st.integers(0, 7))
    def add(self, place):
        one = np.ones(1, "i8")
        if self.attempt(self.access != "none", lambda: self.window.accumulate(one, 0, place)):
            self.model[place] += 1
            self.used = True

    @rule()
    def flush(self):
        legal = self.access in ("lock", "lock_all")
        if self.attempt(legal, lambda: self.window.flush(0)):
            assert np.array_equal(self.window.local, self.model)

    @precondition(lambda self: not self.free_to_open() or self.exposed)
    @rule()
    def free_too_early(self):
        self.attempt(False, self.window.free)

    @invariant()
    def memory_is_that_of_the_model_between_epochs(self):
        if hasattr(self, "window") and self.access == "none":
            assert np.array_equal(self.window.local, self.model)


TestNotifications = Notifications.TestCase
TestNotifications.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestEpochs = Epochs.TestCase
TestEpochs.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
