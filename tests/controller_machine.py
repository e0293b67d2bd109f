"""Two controllers under commands, epochs and crashes: the one whose driver dies says what the other one says."""

import json

import numpy as np
from carried import carried, knobs
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from harness.suites.conformance.bounds import completes
from impls import catalog
from impls.protocol.controller import Controller
from impls.protocol.events import Command
from impls.protocol.view import Observation

DROP_ENTRIES = 4
EPOCHS_PER_BIN = 20  # no mechanism needs as many; tests/property/test_mechanisms.py has the bounds
WORKERS = st.integers(1, 4)
SEEDS = st.integers(0, 1 << 16)
CRASHES = st.sampled_from(["", "", "", "planned", "observed"])


def stored(value):
    """What is read back of what a journal was given."""
    return type(value).from_json(json.loads(json.dumps(value.to_json())))


class ControllerMachine(RuleBasedStateMachine):
    """`steady` never crashes, `mortal` is made anew from what is durable; workers do what its plans say.

    `copies` are the bins that each worker has, the owner's and those that are to be dropped.
    """

    @initialize(
        data=st.data(), name=st.sampled_from(catalog.names()), bins=st.sampled_from([2, 8, 16]), workers=WORKERS,
        seed=SEEDS,
    )  # fmt: skip
    def begin(self, data, name, bins, workers, seed):
        self.name, self.options = name, data.draw(knobs(name))
        self.random = np.random.default_rng(seed)
        self.initial = self.random.integers(0, workers, bins).astype(np.int32)
        self.steady, self.mortal = self.made(), self.made()
        self.copies = {(bin_, worker) for bin_, worker in enumerate(self.initial.tolist())}
        self.base, self.plans, self.observed, self.commands = None, [], [], []
        self.asked = 0

    def made(self):
        return Controller(self.initial, catalog.make(self.name, **self.options), drop_entries=DROP_ENTRIES)

    @rule()
    def crash(self):
        self.mortal = self.made()
        if self.base is not None:
            self.mortal.restore(json.loads(self.base))
        journals = self.plans, self.observed, self.commands
        self.mortal.replay(*([stored(entry) for entry in journal] for journal in journals))

    @rule()
    def make_a_base(self):
        """The journals start again with what the controller is at the end of an epoch."""
        self.base = json.dumps(self.mortal.to_json())
        self.plans, self.observed, self.commands = [], [], []

    @rule(workers=WORKERS, seed=SEEDS)
    def command(self, workers, seed):
        goal = np.random.default_rng(seed).integers(0, workers, len(self.initial)).astype(np.int32)
        self.asked += 1
        wanted = Command(f"c{self.asked}", "rebalance", goal, "", self.mortal.observed + 1)
        self.commands.append(wanted)
        for controller in (self.steady, self.mortal):
            controller.accept(stored(wanted))

    @rule(crash=CRASHES)
    def epoch(self, crash):
        epoch = self.mortal.observed + 1
        written = self.planned(epoch, crash)
        while written.plan.stop is not None:
            self.observe(Observation(epoch, stopped=True), "")
            self.crash()  # the query is started again
            written = self.planned(epoch, crash)
        for bin_, worker in written.drops:
            assert self.mortal.location[bin_] != worker
            self.copies.remove((bin_, worker))
        before = self.mortal.view(epoch)
        after = carried(before, written.plan, self.random)
        pulled = np.flatnonzero(after.location != before.location).tolist()
        for bin_ in pulled:
            assert (bin_, int(before.location[bin_])) in self.copies, "a bin is pulled from where it is"
            arrived = bin_, int(after.location[bin_])
            assert arrived not in self.copies, "an old copy is dropped before its bin comes back"
            self.copies.add(arrived)
        waits = np.flatnonzero(after.queued).astype(np.int32)
        replicas = [(b, w, at) for (b, w), at in after.replicas.items() if before.replicas.get((b, w)) != at]
        grown = np.flatnonzero(self.random.random(before.bins) < 0.2).astype(np.int32)
        sizes = self.random.integers(0, 100, len(grown))
        entries = tuple(self.random.integers(0, 2 * DROP_ENTRIES, len(pulled)).tolist())
        seen = Observation(epoch, tuple(pulled), queued=(waits, after.queued[waits]), sizes=(grown, sizes),
                           replicas=tuple(replicas), entries=entries)  # fmt: skip
        self.observe(seen, crash)

    def planned(self, epoch, crash):
        """Returns the plan of an epoch, which a driver that has died behind it takes from the journal."""
        written = self.mortal.plan(epoch, 1)
        assert written.to_json() == self.steady.plan(epoch, 1).to_json()
        self.plans.append(written)
        if crash == "planned":
            self.crash()
            self.mortal.adopt(stored(written))
        return written

    def observe(self, seen, crash):
        """Both take in what was done; a driver that has died behind it runs the epoch again."""
        self.observed.append(seen)
        said = [controller.observe(stored(seen)) for controller in (self.steady, self.mortal)]
        assert said[0] == said[1]
        if crash == "observed":
            self.crash()
            assert self.mortal.observe(stored(seen)) == said[0]

    @precondition(lambda self: completes(self.name))
    @rule()
    def migrate(self):
        """A migration ends, and every copy but the owner's is dropped behind it."""
        for _ in range(EPOCHS_PER_BIN * len(self.initial)):
            self.epoch("")
            if not self.mortal.migrating:
                break
        assert not self.mortal.migrating
        for _ in range(len(self.copies)):
            self.epoch("")
        assert self.copies == {(bin_, worker) for bin_, worker in enumerate(self.mortal.goal.tolist())}

    @invariant()
    def both_are_the_same_and_every_bin_is_where_they_say(self):
        assert self.mortal.to_json() == self.steady.to_json()
        assert {(bin_, worker) for bin_, worker in enumerate(self.mortal.location.tolist())} <= self.copies
