"""Bugs planted in the real code: the simulation finds each of them, by the check that it must violate."""

import contextlib
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
from planted import (
    dropped_before_the_pull_is_observed,
    find,
    frame_not_written_again,
    results_not_sent_again,
    stale_environment_accepted,
)

from impls.driver import keeper
from impls.durability import restore
from impls.errors import StateError
from impls.operators import base
from impls.protocol import controller
from impls.protocol.plan import EpochPlan, Pull
from impls.store import bins, checked, entries, state, tables
from impls.store.bins import copy_bin
from impls.store.environment import Store, store_path
from impls.store.lock import WriterLock
from impls.worker import commit, opening, replicas
from impls.worker.environment import Environment
from impls.worker.parts import Cause, Untrusted

# a process that dies leaves its files to the system, an attempt that dies leaves them to the collector
pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored in.*writer:pytest.PytestUnraisableExceptionWarning")
SEEDS = 200
QUIET = {"faults": 0}
ON_DEMAND = {"mechanism": "on-demand"}
NO_BUDGET = {**ON_DEMAND, "options": {"budget": 0}}
FLIPS = {"kinds": {"flip": 1}, "faults": 8}
THERE_AND_BACK = ((3, "rescale", 6), (5, "home", 0), (7, "shuffle", 1), (9, "rescale", 2), (11, "home", 0))
MANY_QUEUES = {**NO_BUDGET, "commands": THERE_AND_BACK}


def bin_that_comes_back_dropped_later(patch):
    plain = controller.drops_within_budget
    patch.setattr(controller, "drops_within_budget", lambda pending, _pulls, budget: plain(pending, (), budget))


def epoch_check_removed(patch):
    patch.setattr(opening, "_check_owner", lambda *_: None)


def zombie_recovers(patch):
    def checked(meta, task, _path):
        if meta is None or not task.epoch - 1 <= meta.epoch <= task.epoch:
            raise opening._UnusableError(Untrusted(Cause.STALE))
        return meta

    patch.setattr(opening, "_checked", checked)
    patch.setattr(opening, "_check_owner", lambda *_: None)


def queue_reordered(patch):
    patch.setattr(base, "oldest_first", lambda tables: pa.concat_tables(tables[::-1]))


def routed_away_with_a_queue(patch):
    def plan(_self, view):
        away = np.flatnonzero(view.goal != view.location).tolist()
        pulls = tuple(Pull(b, int(view.location[b]), int(view.goal[b])) for b in away)
        return EpochPlan(view.goal.copy(), pulls, 0, on_demand=True)

    patch.setattr(OnDemand, "plan", plan)
    patch.setattr(controller, "validate", lambda *_: None)


def snapshot_of_a_later_epoch(patch):
    """The lock is let go at the commit, and the image is of whatever is there by then."""
    plain = commit._publish

    def unlocked(env, *given):
        env._opened.lock.close()
        plain(env, *given)

    patch.setattr(commit, "_publish", unlocked)
    patch.setattr(Environment, "_check_ours", lambda _: None)


def frames_deleted_too_early(patch):
    take = keeper.KeptLog.take_needless

    def too_early(self, written, pinned=()):
        return take(self, replace(written, base=written.base + 1), pinned)

    patch.setattr(keeper.KeptLog, "take_needless", too_early)


def restore_ignores_pulls(patch):
    plain = restore._read_frame

    def read_frame(*args, **more):
        return replace(plain(*args, **more), pulls=[])

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


def _no_lock(path):
    return WriterLock(path)


def lock_ignored(patch):
    patch.setattr(opening, "take_lock", _no_lock)


def lock_of_replicas_ignored(patch):
    """LMDB's own lock is left, on which attempts wait without end for one that hangs."""
    patch.setattr(replicas, "take_lock", _no_lock)


def lock_on_a_new_folder_trusted(patch):
    """Another attempt may have made its environment there, and have ended, before the lock was taken."""

    def rebuilt(task, path, _aside, **more):
        return opening._new(task, path, opening.take_lock(path), **more)

    patch.setattr(opening, "_rebuilt", rebuilt)


def failed_rebuild_renames_over_a_live_environment(patch):
    patch.setattr(opening, "holds", lambda *_: True)


def sizes_unknown_at_a_start(patch):
    """A driver that starts takes every bin for due."""
    plain = keeper.SnapshotSchedule.__init__

    def begin(self, manifest, *, sizes, **more):
        plain(self, manifest, sizes=np.zeros_like(sizes), **more)

    patch.setattr(keeper.SnapshotSchedule, "__init__", begin)


def snapshots_made_before_a_start_forgotten(patch):
    """A driver that dies soon after its start has made its snapshots in vain, and so has the next one."""
    plain = keeper.read_manifests
    patch.setattr(keeper, "read_manifests", lambda *args: (plain(*args)[0],) * 2)


def replica_read_from_a_live_environment(patch):
    plain = replicas._bring

    def bring(source, txn, task, bins):
        done = plain(source, txn, task, bins)
        for bin_ in bins:
            path = store_path(task.spec.state_dir, task.order.location_of(bin_))
            with contextlib.suppress(StateError), Store.open(path, create=False) as store, store.reading() as view:
                copy_bin(view, txn, bin_)
        return done

    patch.setattr(replicas, "_bring", bring)


def neighbours_of_other_tables_not_verified(patch):
    patch.setattr(checked, "_verify", lambda *_: None)


def range_believed_where_damage_ends_it(patch):
    def believed(txn, low, high):
        return ((bytes(name), bytes(stored)) for name, stored in tables.iter_range(txn, low, high))

    patch.setattr(state, "whole_range", believed)


def checksums_of_blocks_ignored(patch):
    def unchecked(raw, _numbers, _where):
        return np.frombuffer(raw, "<u8").reshape(-1, entries.SLOTS + 1).copy()

    for module in (bins, checked, state):
        patch.setattr(module, "open_blocks", unchecked)


def torn_frames_not_written_again(patch):
    frame_not_written_again(patch)


# what is drawn for it, and the checks that may find it
BUGS = {
    dropped_before_the_pull_is_observed: ({**QUIET, "operator": "hash", "mechanism": "megaphone-fluid"}, {"state"}),
    bin_that_comes_back_dropped_later: ({**QUIET, "operator": "hash", "commands": THERE_AND_BACK}, {"results"}),
    epoch_check_removed: ({"kinds": {"hang": 1}, "faults": 8}, {"attempts", "results"}),
    zombie_recovers: ({"kinds": {"hang": 1}, "faults": 8}, {"zombie"}),
    results_not_sent_again: ({"kinds": {"die": 1}, "faults": 8}, {"results"}),
    frame_not_written_again: ({"kinds": {"die": 1}, "faults": 8}, {"restore"}),
    queue_reordered: ({**QUIET, **NO_BUDGET, "operator": "chain"}, {"results"}),
    routed_away_with_a_queue: ({**QUIET, **ON_DEMAND, "commands": THERE_AND_BACK}, {"results", "stuck"}),
    stale_environment_accepted: ({"kinds": {"stale": 1}, "faults": 6}, {"attempts", "results", "state"}),
    snapshot_of_a_later_epoch: ({"kinds": {"hang": 1}, "faults": 8}, {"attempts"}),
    frames_deleted_too_early: (QUIET, {"restore"}),
    restore_ignores_pulls: (QUIET, {"restore", "state"}),
    restore_takes_the_oldest_value: (QUIET, {"restore"}),
    queue_of_an_earlier_owner_restored: ({**QUIET, **MANY_QUEUES}, {"restore"}),
    lock_ignored: ({"kinds": {"twice": 3, "hang": 1}, "faults": 8}, {"attempts", "results"}),
    lock_of_replicas_ignored: ({"kinds": {"hang": 1}, "faults": 8, "mechanism": "rhino"}, {"stuck"}),
    lock_on_a_new_folder_trusted: (
        {"kinds": {"twice": 2, "lose": 1}, "faults": 8}, {"attempts", "recovery", "results"}
    ),
    failed_rebuild_renames_over_a_live_environment: ({"kinds": {"hang": 2, "lose": 1}, "faults": 8}, {"zombie"}),
    sizes_unknown_at_a_start: ({"kinds": {"driver": 1}, "faults": 8}, {"snapshots"}),
    snapshots_made_before_a_start_forgotten: ({"kinds": {"driver": 1}, "faults": 24}, {"replay"}),
    replica_read_from_a_live_environment: ({**QUIET, "mechanism": "replicated-dataflow"}, {"replica"}),
    checksums_of_blocks_ignored: ({**FLIPS, "operator": "dense"}, {"results", "state"}),
    neighbours_of_other_tables_not_verified: (FLIPS, {"attempts", "restore", "results", "state"}),
    torn_frames_not_written_again: ({"kinds": {"host": 1}, "faults": 4}, {"restore"}),
}  # fmt: skip


PLAIN: dict[str, object] = {"changes": (), "autoscale": "", "refused": 0.0}


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant):
    drawn, checks = BUGS[plant]
    find(plant, lambda seed: simulate(draw(seed, durability="process", **PLAIN, **drawn)), checks, SEEDS)


# state of two shapes lies behind each of many bits that flip
SHAPES = {"operator": "chain", "mechanism": "none", "changes": tuple((at, "shape", 256 + at) for at in range(4, 24, 4))}


def test_a_change_of_shape_that_damage_hides_entries_from_is_found():
    drawn = {**FLIPS, **SHAPES, "faults": 20, "autoscale": "", "durability": "process"}
    # an entry that was hidden has its old shape, in which its version then fails at every start
    checks = {"attempts", "restore", "results", "shapes", "state", "stuck"}
    find(range_believed_where_damage_ends_it, lambda seed: simulate(draw(seed, **drawn)), checks, SEEDS)
