"""Bugs planted in commits and epochs of real time: its simulation finds each of them, by a check that it violates."""

import pytest
from planted import (
    dropped_before_the_pull_is_observed,
    frame_not_written_again,
    left_behind_by_its_bin,
    results_not_sent_again,
)
from planted_realtime import DYING, HOLDING, MOVING, QUEUEING, QUIET, find, pull_before_final, results_before_the_frame
from router import Router

from impls.durability import restore
from impls.protocol.coordinator import Coordinator
from impls.protocol.session import Final, Marks
from impls.realtime.blobs import Intake
from impls.realtime.worker import RealTimeWorker
from impls.store import bins
from impls.store.offsets import Offsets
from impls.store.state import BinState
from impls.store.tables import OFFSETS, STATE_TABLES, bin_range, drop_range
from impls.worker import opening
from impls.worker.worker import Worker


def marks_counted_before_the_commit(patch):
    """A blob counts when it has come, not when it is committed."""
    plain = Intake.put

    def put(self, blobs):
        plain(self, blobs)
        for blob in blobs:
            self.applied[blob.source] = blob.number

    patch.setattr(Intake, "put", put)
    patch.setattr(Intake, "count", lambda *_: None)


def offsets_not_committed(patch):
    patch.setattr(BinState, "put_offsets", lambda *_, **__: None)


def offsets_left_behind_by_their_bin(patch):
    left_behind_by_its_bin(patch, OFFSETS)


def offsets_of_a_pulled_bin_not_read(patch):
    plain = Offsets.load

    def load(self, txn, bins=None):
        if bins is None:
            plain(self, txn)

    patch.setattr(Offsets, "load", load)


def router_counts_after_the_next_blob(patch):
    """It answers with its counts before, and then sends another blob by the old routing."""
    switch, pack = Router.switch, Router.pack

    def switched(self, route):
        before, answer = self._route, switch(self, route)
        if before is not None:
            self._late, self._route = self._route, before
        return answer

    def packed(self, batches, **more):
        found = pack(self, batches, **more)
        self._route = self.__dict__.pop("_late", self._route)
        return found

    patch.setattr(Router, "switch", switched)
    patch.setattr(Router, "pack", packed)


def tick_told_again(patch):
    """To a session that knows it already: its routing counts as unchanged, and the order as another one."""

    def begin(self, order):
        self._order, self.ended, self._begun = order, {}, False
        return self._tell()

    def hear(self, message):
        if isinstance(message, Marks | Final):
            self._messages.append(message)
        elif not self.worker.in_epoch or message.order.written.epoch > self._epoch:
            self._orders.append(message.order)

    patch.setattr(Coordinator, "begin", begin)
    patch.setattr(RealTimeWorker, "hear", hear)


def restore_ignores_the_old_owners_changes_of_the_epoch(patch):
    patch.setattr(restore, "_take_of_old_owners", lambda *_, **__: None)


def worker_that_began_with_nothing_made_empty_again(patch):
    patch.setattr(opening, "has_worked", lambda _: False)


def queue_of_a_workers_earlier_life_restored(patch):
    patch.setattr(restore._Walk, "with_images", lambda _, queues: queues)


def held_by_the_old_owner(patch):
    def blocked(self, pulls):
        missing = self.pulls.missing if self.in_epoch else self._missing
        return (missing - {pull.bin for pull in pulls}) | set(self.task.order.written.plan.hold)

    patch.setattr(Worker, "_blocked", blocked)


def pieces_dropped_of_a_bin_that_is_back(patch):
    """What says that a bin is being dropped outlives its return."""

    def drop(txn, bin_):
        for table in STATE_TABLES:
            drop_range(txn, *bin_range(table, bin_))

    patch.setattr(bins, "drop_bin", drop)


LEAVING = tuple((epoch, "rescale", workers) for epoch, workers in ((2, 5), (4, 1), (8, 5), (10, 1), (12, 6)))

# what is drawn for it, and the checks that may find it
BUGS = {
    pull_before_final: ({**QUIET, **MOVING, "operator": "hash"}, {"results", "offsets", "restore", "state"}),
    marks_counted_before_the_commit: ({**QUIET, **MOVING, "operator": "hash"}, {"results", "offsets", "restore"}),
    offsets_not_committed: ({**DYING, "operator": "hash"}, {"results", "offsets", "state"}),
    offsets_left_behind_by_their_bin: ({**MOVING, **DYING, "operator": "hash"}, {"results", "offsets", "restore"}),
    offsets_of_a_pulled_bin_not_read: ({**MOVING, **DYING, "operator": "hash"}, {"busy", "offsets", "results", "task"}),
    results_before_the_frame: ({**DYING, "operator": "hash"}, {"results", "repeats"}),
    frame_not_written_again: ({**DYING, "operator": "hash"}, {"restore", "results", "offsets", "repeats"}),
    results_not_sent_again: ({**DYING, "operator": "chain"}, {"results", "numbers"}),
    router_counts_after_the_next_blob: ({**QUIET, **MOVING, "operator": "hash"}, {"results", "offsets", "restore"}),
    tick_told_again: ({**QUEUEING, **DYING, "operator": "hash", "batch_end": 0.02}, {"busy", "stuck"}),
    restore_ignores_the_old_owners_changes_of_the_epoch: ({**QUIET, "operator": "hash"}, {"restore", "results"}),
    dropped_before_the_pull_is_observed: ({**QUIET, **MOVING, "operator": "hash"}, {"results", "state", "restore"}),
    worker_that_began_with_nothing_made_empty_again: ({**MOVING, **DYING, "operator": "hash"}, {"repeats"}),
    pieces_dropped_of_a_bin_that_is_back: ({**QUIET, **MOVING, "operator": "hash"}, {"one owner", "restore"}),
    queue_of_a_workers_earlier_life_restored: (
        {"mechanism": "partial-pause", "commands": LEAVING, "operator": "chain", "durability": "process"}, {"restore"}
    ),
    held_by_the_old_owner: ({**QUIET, **HOLDING, "operator": "hash"}, {"results", "restore", "offsets"}),
}  # fmt: skip


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_bug_planted_in_real_time_mode_is_found(plant):
    find(plant, *BUGS[plant])
