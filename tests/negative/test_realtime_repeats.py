"""Bugs planted in what real-time mode does with event times, repeats and damage: its simulation finds each of them."""

from dataclasses import replace

import pytest
from planted_realtime import DAMAGED, DYING, QUEUEING, QUIET, REPEATED, TIMED, find, queue_of_a_repeated_batch_kept

from impls.protocol.session import Marks
from impls.realtime.marks import Progress
from impls.store.offsets import Offsets
from impls.worker import batches, commit, held, reports
from impls.worker.state import WorkerState
from impls.worker.worker import Worker


def queue_of_ended_epochs_given_up(patch):
    patch.setattr(WorkerState, "first_of", lambda self, _: self.since)


def times_of_the_epoch_itself_counted(patch):
    """What one worker has seen raises the watermark over records that others still have to come."""
    patch.setattr(commit, "add_times", lambda state, now, ahead: reports.add_times(state, [*now, *ahead], []))


def times_of_a_repeated_batch_counted(patch):
    patch.setattr(batches, "forget_times", lambda state: state)


def reported_twice_what_came_between_epochs(patch):
    plain = Worker.begin

    def begin(self, order):
        plain(self, order)
        if not self.ended:
            kept = reports.kept_report(self.state, self._number)
            self._held.report = reports.merged_report(kept, self._held.report)

    patch.setattr(Worker, "begin", begin)


def damage_taken_for_a_repeated_batch(patch):
    plain = held.begin_batch
    patch.setattr(held, "begin_batch", lambda env, batch, *, resumed: plain(env, batch, resumed=False))


def what_queues_hold_taken_for_new(patch):
    patch.setattr(Offsets, "keep", lambda *_: None)


def standbys_one_epoch_behind(patch):
    plain = commit.keep_replicas

    def keep_replicas(task, received, report):
        plain(task, received, report)
        shown = [[bin_, min(at, task.epoch - 1)] for bin_, at in report.replication.replicas]
        report.replication = replace(report.replication, replicas=shown)

    patch.setattr(commit, "keep_replicas", keep_replicas)


def epochs_of_unchanged_routing_do_not_wait_for_their_marks(patch):
    """Then a record that is under way counts as one that nobody needs again."""
    plain = Progress.hear

    def hear(self, message):
        plain(self, replace(message, counts=()) if isinstance(message, Marks) and message.settled else message)

    patch.setattr(Progress, "hear", hear)


def records_of_a_dead_task_not_reported(patch):
    patch.setattr(commit, "keep_report", lambda *given: replace(reports.keep_report(*given), records=0))


# what is drawn for it, and the checks that may find it
BUGS = {
    queue_of_a_repeated_batch_kept: ({**QUEUEING, **DYING, "operator": "hash"}, {"results", "offsets", "restore"}),
    queue_of_ended_epochs_given_up: ({**QUEUEING, **REPEATED, **TIMED}, {"results", "offsets", "restore", "last"}),
    times_of_the_epoch_itself_counted: ({**QUIET, **TIMED}, {"results"}),
    times_of_a_repeated_batch_counted: ({**DYING, **TIMED}, {"results"}),
    reported_twice_what_came_between_epochs: ({**QUIET, **TIMED}, {"results", "driver", "reports"}),
    damage_taken_for_a_repeated_batch: ({**QUEUEING, **DAMAGED}, {"results", "offsets", "state", "reports"}),
    what_queues_hold_taken_for_new: (
        {**QUEUEING, **REPEATED, "durability": "process", "operator": "hash", "most": 20, "rates": {"task": 0.05}},
        {"results", "state", "offsets"},
    ),
    standbys_one_epoch_behind: ({**QUIET, "mechanism": "replicated-dataflow"}, {"goal"}),
    epochs_of_unchanged_routing_do_not_wait_for_their_marks: (REPEATED, {"results", "offsets", "state", "reports"}),
    records_of_a_dead_task_not_reported: ({**DYING, "operator": "hash"}, {"reports"}),
}  # fmt: skip


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_bug_planted_in_repeats_of_real_time_mode_is_found(plant):
    find(plant, *BUGS[plant])
