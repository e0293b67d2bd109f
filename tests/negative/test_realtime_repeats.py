"""Bugs planted in what real-time mode does with event times, repeats and damage: its simulation finds each of them."""

from dataclasses import replace

import pytest
from planted_realtime import DAMAGED, DYING, QUEUEING, QUIET, REPEATED, TIMED, find, queue_of_a_repeated_batch_kept

from impls.protocol.session import Marks
from impls.realtime import environment, merging, turn, worker
from impls.realtime import merging as event_times
from impls.realtime.environment import TurnEnvironment
from impls.realtime.turn import WorkerTick
from impls.realtime.worker import TurnWorker
from impls.store.offsets import Offsets
from impls.worker.turnstate import TurnState


def queue_of_ended_ticks_given_up(patch):
    patch.setattr(TurnState, "first_of", lambda self, _: self.since)


def merged_partials_delivered_twice(patch):
    plain = turn._work

    def work(env, task, txn, given, report, so_far):
        with pytest.MonkeyPatch.context() as inner:
            if given.in_tick and given.blobs:
                inner.setattr(env, "state", replace(env.state, begun=-1))
                task = replace(task, order=replace(task.order, written=replace(task.order.written, drops=())))
            return plain(env, task, txn, given, report, so_far)

    patch.setattr(turn, "_work", work)


def times_of_the_tick_itself_counted(patch):
    """What one worker has seen raises the watermark over records that others still have to come."""

    def seen(state, blobs, operator):
        after = event_times.seen(state, blobs, operator)
        return replace(after, times=event_times.highest([*after.times, *after.ahead]), ahead=[])

    patch.setattr(turn, "seen", seen)


def times_of_a_repeated_batch_counted(patch):
    patch.setattr(environment, "again", lambda state: state)


def bins_that_wait_not_told(patch):
    plain = turn.end_tick
    patch.setattr(worker, "end_tick", lambda env, task, report, _: plain(env, task, report, ()))


def told_twice_what_came_between_ticks(patch):
    plain = TurnWorker._begin_tick

    def begin_tick(self, order):
        plain(self, order)
        if self._tick is not None:
            self._report = worker.merged_report(worker.restored(self._env.state, self._worker), self._report)

    patch.setattr(TurnWorker, "_begin_tick", begin_tick)


def damage_taken_for_a_repeated_batch(patch):
    plain = TurnEnvironment.__init__

    def init(self, task, *, resumed=False, **more):
        plain(self, task, **more)

    patch.setattr(TurnEnvironment, "__init__", init)


def order_lost_where_damage_is_found(patch):
    plain = TurnWorker._begin_tick

    def begin_tick(self, order):
        try:
            plain(self, order)
        except worker.DAMAGE:
            self._orders[0] = replace(order, written=replace(order.written, epoch=-1))
            raise

    patch.setattr(TurnWorker, "_begin_tick", begin_tick)


def what_queues_hold_taken_for_new(patch):
    patch.setattr(Offsets, "keep", lambda *_: None)


def standbys_one_tick_behind(patch):
    plain = turn.keep_replicas

    def keep_replicas(task, received, report):
        plain(task, received, report)
        shown = [[bin_, min(at, task.epoch - 1)] for bin_, at in report.replication.replicas]
        report.replication = replace(report.replication, replicas=shown)

    patch.setattr(turn, "keep_replicas", keep_replicas)


def ticks_of_unchanged_routing_do_not_wait_for_their_marks(patch):
    """Then a record that is under way counts as one that nobody needs again."""
    plain = WorkerTick.hear

    def hear(self, message):
        plain(self, replace(message, counts=()) if isinstance(message, Marks) and message.settled else message)

    patch.setattr(WorkerTick, "hear", hear)


def records_of_a_dead_task_not_reported(patch):
    patch.setattr(turn, "lasting", lambda *given: replace(merging.lasting(*given), records=0))


# what is drawn for it, and the checks that may find it
BUGS = {
    queue_of_a_repeated_batch_kept: ({**QUEUEING, **DYING, "operator": "hash"}, {"results", "offsets", "restore"}),
    queue_of_ended_ticks_given_up: ({**QUEUEING, **REPEATED, **TIMED}, {"results", "offsets", "restore"}),
    merged_partials_delivered_twice: ({**QUIET, **TIMED}, {"results"}),
    times_of_the_tick_itself_counted: ({**QUIET, **TIMED}, {"results"}),
    times_of_a_repeated_batch_counted: ({**DYING, **TIMED}, {"results"}),
    told_twice_what_came_between_ticks: ({**QUIET, **TIMED}, {"results", "driver", "reports"}),
    damage_taken_for_a_repeated_batch: ({**QUEUEING, **DAMAGED}, {"results", "offsets", "state", "reports"}),
    order_lost_where_damage_is_found: ({**DAMAGED, "operator": "hash"}, {"stuck", "busy", "task", "driver"}),
    what_queues_hold_taken_for_new: (
        {**QUEUEING, **REPEATED, "durability": "process", "operator": "hash", "most": 20, "rates": {"task": 0.05}},
        {"results", "state", "offsets"},
    ),
    standbys_one_tick_behind: ({**QUIET, "mechanism": "replicated-dataflow"}, {"goal"}),
    ticks_of_unchanged_routing_do_not_wait_for_their_marks: (REPEATED, {"results", "offsets", "state", "reports"}),
    records_of_a_dead_task_not_reported: ({**DYING, "operator": "hash"}, {"reports"}),
    bins_that_wait_not_told: ({**QUIET, **QUEUEING, **TIMED}, {"results"}),
}  # fmt: skip


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_bug_planted_in_repeats_of_real_time_mode_is_found(plant):
    find(plant, *BUGS[plant])
