"""Bugs planted in the real code: the simulation finds each of them, by the check that it must violate.

A replica that is read from a live environment belongs here as soon as there are replicas.
"""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "simulation"))

from chaos.parameters import draw
from chaos.query import simulate
from crash_simulator import OnDemand

from impls.durability import restore, schedule
from impls.durability.files import Files
from impls.durability.frame import FOLDER
from impls.runtime import controller, opening, state, worker
from impls.runtime.controller import Controller
from impls.runtime.plan import EpochPlan, Pull
from impls.runtime.worker import WorkerCore

# a process that dies leaves its files to the system, an attempt that dies leaves them to the collector
pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored in.*writer:pytest.PytestUnraisableExceptionWarning")
SEEDS = 1000
QUIET = {"faults": 0}
THERE_AND_BACK = ((3, "rescale", 6), (5, "home", 0), (7, "shuffle", 1), (9, "rescale", 2), (11, "home", 0))


class NoFrames(Files):
    """Files that lose changelog frames."""

    def write(self, name, data):
        if not name.startswith(FOLDER):
            super().write(name, data)


def dropped_before_the_pull_is_observed(patch):
    plain = Controller.plan

    def plan(self, epoch, generation):
        written = plain(self, epoch, generation)
        return replace(written, drops=written.drops + tuple((p.bin, p.source) for p in written.plan.pulls))

    patch.setattr(Controller, "plan", plan)


def epoch_check_removed(patch):
    patch.setattr(opening, "_check_owner", lambda *_: None)


def zombie_recovers(patch):
    def checked(meta, order, _path):
        if meta is None or not order.written.epoch - 1 <= meta.epoch <= order.written.epoch:
            raise opening._UnusableError("not of this epoch")
        return meta

    patch.setattr(opening, "_checked", checked)
    patch.setattr(opening, "_check_owner", lambda *_: None)


def _when_repeated(patch, change):
    plain = WorkerCore._after

    def after(self):
        if self.report.repeated:
            self.order = change(self.order)
        return plain(self)

    patch.setattr(WorkerCore, "_after", after)


def outbox_not_replayed(patch):
    class Nowhere:
        def send(self, *_args, **_more):
            pass

    _when_repeated(patch, lambda order: replace(order, output=Nowhere()))


def frame_not_written_again(patch):
    _when_repeated(patch, lambda order: replace(order, files=NoFrames(order.files.uri)))


def queue_reordered(patch):
    plain = WorkerCore._runnable

    def runnable(self, table, blocked):
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(worker, "concat", lambda tables: pa.concat_tables(tables[::-1]))
            return plain(self, table, blocked)

    patch.setattr(WorkerCore, "_runnable", runnable)


def routed_away_with_a_queue(patch):
    def plan(_self, view):
        away = np.flatnonzero(view.goal != view.location).tolist()
        pulls = tuple(Pull(b, int(view.location[b]), int(view.goal[b])) for b in away)
        return EpochPlan(view.goal.copy(), pulls, 0, on_demand=True)

    patch.setattr(OnDemand, "plan", plan)
    patch.setattr(controller, "validate", lambda *_: None)


def stale_environment_accepted(patch):
    def checked(meta, order, path):
        if meta is None:
            raise opening._UnusableError("missing")
        opening._check_owner(meta, order, path)
        return meta

    patch.setattr(opening, "_checked", checked)


def snapshot_of_a_later_epoch(patch):
    """The lock is let go at the commit, and the image is of whatever is there by then."""
    after, snapshot = WorkerCore._after, WorkerCore._snapshot

    def unlocked(self):
        self._opened.lock.close()
        return after(self)

    def unchecked(self):
        self._still_ours = lambda _txn: None
        snapshot(self)

    patch.setattr(WorkerCore, "_after", unlocked)
    patch.setattr(WorkerCore, "_snapshot", unchecked)


def frames_deleted_too_early(patch):
    def needless(self, names):
        return [name for name in names if name[0] <= int(self.manifest.base.min()) + 1]

    patch.setattr(schedule.SnapshotSchedule, "needless_log", needless)


def restore_ignores_pulls(patch):
    plain = restore._read_frame

    def read_frame(*args):
        return replace(plain(*args), pulls=[])

    patch.setattr(restore, "_read_frame", read_frame)


def restore_takes_the_oldest_value(patch):
    plain = restore._Walk.newest

    def oldest(self):
        for column in (self.names, self.values, self.codes, self.counts):
            column.reverse()
        self.codes, self.counts = ([part[::-1] for part in parts] for parts in (self.codes, self.counts))
        return plain(self)

    patch.setattr(restore._Walk, "newest", oldest)


def queue_of_an_earlier_owner_restored(patch):
    plain = restore._load_snapshots

    def load(source, manifest, state, txn, wanted):
        plain(source, manifest, state, txn, replace(wanted, queues=()))
        for bin_ in wanted.queues:
            if manifest.file_epoch[bin_] >= 0:
                images = restore._read_snapshot(source, *manifest.queue_file(bin_))
                restore.snapshots.install_queue(txn, images[bin_])

    patch.setattr(restore, "_load_snapshots", load)


def lock_ignored(patch):
    def lock(path):
        path.mkdir(parents=True, exist_ok=True)
        return (path / "writer").open("ab")

    patch.setattr(opening, "_lock", lock)


def checksums_of_blocks_ignored(patch):
    def unchecked(raw, _where):
        return np.frombuffer(raw, "<u8").reshape(-1, state.SLOTS + 1).copy()

    patch.setattr(state, "open_blocks", unchecked)


def torn_frames_not_healed(patch):
    patch.setattr(opening, "_heal", lambda *_: None)


BUGS = {
    dropped_before_the_pull_is_observed: ({**QUIET, "operator": "hash", "mechanism": "megaphone-fluid"}, {"state"}),
    epoch_check_removed: ({"kinds": {"hang": 1}, "faults": 8}, {"attempts"}),
    zombie_recovers: ({"kinds": {"hang": 1}, "faults": 8}, {"zombie"}),
    outbox_not_replayed: ({"kinds": {"die": 1}, "faults": 8}, {"results"}),
    frame_not_written_again: ({"kinds": {"die": 1}, "faults": 8}, {"restore"}),
    queue_reordered: ({**QUIET, "operator": "chain", "mechanism": "on-demand", "options": {"budget": 0}}, {"results"}),
    routed_away_with_a_queue: ({**QUIET, "mechanism": "on-demand", "commands": THERE_AND_BACK}, {"results"}),
    stale_environment_accepted: ({"kinds": {"stale": 1}, "faults": 6}, {"results", "state"}),
    snapshot_of_a_later_epoch: ({"kinds": {"hang": 1}, "faults": 8}, {"attempts"}),
    frames_deleted_too_early: (QUIET, {"restore"}),
    restore_ignores_pulls: (QUIET, {"restore"}),
    restore_takes_the_oldest_value: (QUIET, {"restore"}),
    queue_of_an_earlier_owner_restored: (
        {**QUIET, "mechanism": "on-demand", "options": {"budget": 0}, "commands": THERE_AND_BACK}, {"restore"},
    ),
    lock_ignored: ({"kinds": {"twice": 3, "hang": 1}, "faults": 8}, {"attempts", "results"}),
    checksums_of_blocks_ignored: ({"kinds": {"flip": 1}, "faults": 8, "operator": "dense"}, {"results", "state"}),
    torn_frames_not_healed: ({"kinds": {"host": 1}, "faults": 4}, {"restore"}),
}  # fmt: skip


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant, monkeypatch):
    drawn, checks = BUGS[plant]
    plant(monkeypatch)
    outcomes = (simulate(draw(seed, **drawn)) for seed in range(SEEDS))
    found = next((outcome for outcome in outcomes if outcome.violation), None)
    assert found is not None, f"{SEEDS} seeds did not find it"
    assert found.violation in checks, found.sentence
