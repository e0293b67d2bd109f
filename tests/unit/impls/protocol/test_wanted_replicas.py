"""Replicas that nobody wants any more: the controller forgets them, and has their workers delete them."""

import json

import numpy as np
import pytest

from impls import catalog
from impls.protocol.controller import Controller
from impls.protocol.events import Command
from impls.protocol.plan import WrittenPlan
from impls.protocol.view import Observation

BINS, SIZE = 24, 1000


def spread(workers):
    return (np.arange(BINS) * workers // BINS).astype(np.int32)


class Query:
    """A controller with workers that do what its plans ask for; `disks` are the replicas that they have by then."""

    def __init__(self, name, workers, **options):
        self.mechanism = catalog.make(name, **options)
        self.controller, self.epoch, self.disks = Controller(spread(workers), self.mechanism), 0, set()

    def run(self, epochs):
        for _ in range(epochs):
            written = WrittenPlan.from_json(json.loads(json.dumps(self.controller.plan(self.epoch, 1).to_json())))
            plan = written.plan
            assert all(worker < written.workers for _, worker in written.forgotten)
            assert not {*written.forgotten} & {*plan.copies.all}
            copied = [(bin_, at, self.epoch - 1) for bin_, at in plan.copies.replicas]
            copied += [(bin_, at, self.epoch) for bin_, at in plan.copies.standbys]
            self.disks = (self.disks - {*written.forgotten}) | {(bin_, at) for bin_, at, _ in copied}
            pulled = tuple(pull.bin for pull in plan.pulls)
            sizes = np.arange(BINS, dtype=np.int32), np.full(BINS, SIZE)
            entries = (1,) * len(pulled)
            self.controller.observe(
                Observation(self.epoch, pulled=pulled, entries=entries, replicas=tuple(copied), sizes=sizes)
            )
            self.epoch += 1

    def rescale(self, workers):
        self.controller.accept(Command(str(self.epoch), "rescale", spread(workers), "x", self.epoch))


MECHANISMS = [("rhino", {}), ("rhino", {"factor": 2}), ("spacker", {"replicated": 0.3}), ("replicated-dataflow", {})]


@pytest.mark.parametrize(("name", "options"), MECHANISMS, ids=str)
def test_between_migrations_workers_have_the_replicas_that_are_wanted_and_no_others(name, options):
    query = Query(name, 8, **options)
    query.run(30)
    for workers in (4, 8, 6, 3, 8, 2, 1):
        query.rescale(workers)
        query.run(60)
        wanted = set(query.mechanism.standing(query.controller.view(query.epoch)))
        assert set(query.controller.replicas) == query.disks == wanted
        assert not query.controller.plan(query.epoch, 1).forgotten


def test_a_controller_that_begins_anew_forgets_the_same():
    """Also what a worker has left of a bin that it owns by now."""
    query = Query("replicated-dataflow", 4)
    query.run(5)
    query.rescale(6)
    while query.controller.migrating or not query.disks:
        query.run(1)
    again = Controller(spread(4), query.mechanism)
    again.restore(json.loads(json.dumps(query.controller.to_json())))
    plans = [controller.plan(query.epoch, 1) for controller in (query.controller, again)]
    assert set(plans[0].forgotten) == query.disks
    assert plans[1].to_json() == plans[0].to_json()
