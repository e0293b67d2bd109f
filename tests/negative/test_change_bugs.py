"""Bugs planted in changes of a pipeline: the simulation finds each of them, by a check that it violates."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "simulation"))

import planted
from chaos.parameters import draw
from chaos.query import simulate
from planted_realtime import DYING, MOVING, find

from impls.protocol.changing import Changing
from impls.protocol.controller import Controller
from impls.protocol.plan import WrittenPlan
from impls.protocol.versions import Versions
from impls.store.tables import SHAPE
from impls.worker import commit, reports, versions
from impls.worker.applying import Applying
from impls.worker.environment import Environment

# a process that dies leaves its files to the system, an attempt that dies leaves them to the collector
pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored in.*writer:pytest.PytestUnraisableExceptionWarning")
SEEDS = 200
THERE_AND_BACK = ((3, "rescale", 6), (5, "home", 0), (7, "shuffle", 1), (9, "rescale", 2), (11, "home", 0))
QUIET = {"faults": 0, "operator": "chain", "mechanism": "megaphone-fluid", "commands": THERE_AND_BACK}
EAGER, LAZY, BACK = 0, 8 + 16, 2 + 4  # one byte of budget; 60 bytes; a way back, and failures on rare records
SHAPES = ((2, "shape", EAGER), (6, "shape", LAZY), (10, "shape", EAGER))
WAITING = {"mechanism": "on-demand", "options": {"budget": 0}, "changes": ((2, "shape", EAGER), (4, "shape", EAGER))}
REPAIRED = ((3, "migrate-fails", 512), (16, "shape", 256 + 16), (24, "shape", 256 + 4 + 16))
NO_WAY = ((2, "shape", EAGER), (5, "migrate-fails", 4 + 512 + 1024), (12, "migrate-fails", 4 + 16 + 512 + 1024))
RARE = ((2, "shape", EAGER + BACK), (6, "shape", LAZY + BACK))


def shape_left_behind_by_its_bin(patch):
    planted.left_behind_by_its_bin(patch, SHAPE)


def bins_that_move_or_wait_go_over(patch):
    plain = Controller._bins
    patch.setattr(Controller, "_bins", lambda self, plan: replace(plain(self, plan), ready=np.ones(self.bins, bool)))


class _Kept:
    """A transaction that commits when it is to abort."""

    def __init__(self, txn):
        self.real, self.abort, self.commit = txn, txn.commit, txn.commit
        self.cursor, self.get, self.put, self.delete = txn.cursor, txn.get, txn.put, txn.delete


def trial_not_taken_back(patch):
    plain = Environment.begin_inner
    patch.setattr(Environment, "begin_inner", lambda self, txn: _Kept(plain(self, txn)))


def epoch_of_a_refused_version_not_taken_back(patch):
    begin, inner = Environment.begin, Environment.begin_inner
    patch.setattr(Environment, "begin", lambda self: _Kept(begin(self)))
    patch.setattr(Environment, "begin_inner", lambda self, txn: inner(self, txn.real))


def bins_that_have_turned_are_not_taken_back(patch):
    patch.setattr(
        Changing, "_returning", lambda self, version: (self.required == version.number) & (self.shape != version.number)
    )


def shapes_not_logged(patch):
    """A state that is restored is turned a second time."""
    plain = Applying.logged

    def logged(self):
        found = plain(self)
        kept = [i for i, name in enumerate(found["names"]) if name[:1] != SHAPE]
        return {**found, **{name: [found[name][i] for i in kept] for name in ("names", "values")}}

    patch.setattr(Applying, "logged", logged)


def versions_of_bins_not_replayed(patch):
    plain = WrittenPlan.from_json.__func__

    def read(cls, data):
        written = plain(cls, data)
        if written.versions is None:
            return written
        return replace(written, versions=Versions(np.zeros_like(written.versions.required)))

    patch.setattr(WrittenPlan, "from_json", classmethod(read))


def guard_given_up_while_a_version_is_taken_back(patch):
    plain = Changing.plan

    def plan(self, bins):
        found = plain(self, bins)
        return replace(found, guarded=0) if found is not None and self._phase == "back" else found

    patch.setattr(Changing, "plan", plan)


def refits_forgotten(patch):
    patch.setattr(versions.Running, "fit", lambda self, bins: [self._fit(b, _target(self, b)) for b in bins])


def _target(running, bin_):
    return versions.shape_of(int(running.required[bin_]), running._versions)


def turned_shapes_lost_with_their_task(patch):
    plain = commit.keep_report

    def keep_report(state, *given):
        return plain(state, *(replace(report, pipelines=reports.Pipelines()) for report in given))

    patch.setattr(commit, "keep_report", keep_report)


def refused_version_not_told(patch):
    plain = Applying._report_versions

    def report(self, running):
        self._task = replace(self._task, refused=None)
        plain(self, running)

    patch.setattr(Applying, "_report_versions", report)


def state_without_a_way_back_taken_back(patch):
    patch.setattr(versions, "way_back", lambda *_: True)


def offsets_but_no_shapes_in_frames(patch):
    """The same in real time, where an epoch has several frames."""
    plain = Environment.frame

    def frame(self, **changes):
        names, values = changes.get("names", []), changes.get("values", [])
        kept = [i for i, name in enumerate(names) if name[:1] != SHAPE]
        return plain(self, **{**changes, "names": [names[i] for i in kept], "values": [values[i] for i in kept]})

    patch.setattr(Environment, "frame", frame)


def states_that_had_to_stay_turned_again(patch):
    plain = versions.path_between

    def path(source, target, known):
        return plain(source, target, known) or ([(target, "migrate")] if source != target else [])

    patch.setattr(versions, "path_between", path)


def bins_whose_way_back_fails_forgotten(patch):
    patch.setattr(Changing, "_keep", lambda *_: None)


def way_back_that_fails_not_told_from_other_failures(patch):
    plain = versions.PipelineError.__init__
    patch.setattr(versions.PipelineError, "__init__", lambda self, number, text, _bin=None: plain(self, number, text))


# what is drawn for it, and the checks that may find it
MICRO_BATCH = {
    shape_left_behind_by_its_bin: ({**QUIET, "changes": SHAPES}, {"shapes", "state", "stuck", "changes"}),
    bins_that_move_or_wait_go_over: ({**QUIET, **WAITING}, {"shapes", "state", "one owner", "stuck"}),
    trial_not_taken_back: ({**QUIET, "changes": SHAPES}, {"shapes", "state", "results", "stuck"}),
    epoch_of_a_refused_version_not_taken_back: ({**QUIET, "changes": RARE}, {"shapes", "state", "results", "stuck"}),
    bins_that_have_turned_are_not_taken_back: ({**QUIET, "changes": RARE}, {"changes", "stuck"}),
    shapes_not_logged: ({**QUIET, "changes": SHAPES}, {"restore", "shapes"}),
    versions_of_bins_not_replayed: ({**QUIET, "changes": SHAPES, "kinds": {"driver": 1}, "faults": 8}, {"replay"}),
    guard_given_up_while_a_version_is_taken_back: ({**QUIET, "changes": RARE}, {"stuck", "refused"}),
    states_that_had_to_stay_turned_again: (
        {**QUIET, "epochs": 26, "changes": REPAIRED}, {"shapes", "state", "stuck", "results"}
    ),
    bins_whose_way_back_fails_forgotten: ({**QUIET, "epochs": 26, "changes": NO_WAY}, {"goal", "shapes", "stuck"}),
    way_back_that_fails_not_told_from_other_failures: ({**QUIET, "epochs": 26, "changes": NO_WAY}, {"stuck"}),
    refits_forgotten: ({**QUIET, "changes": SHAPES}, {"shapes", "goal"}),
}  # fmt: skip
CHAIN = {"operator": "chain", "changes": ((2, "shape", EAGER), (4, "shape", LAZY), (6, "migrate-fails", LAZY))}
STAYING = {
    "operator": "chain", "durability": "none", "records": 300, "bins": 32, "keys": 60, "epochs": 10, "commit": 1,
    "workers": 2, "slots": 2, "partitions": 1, "commands": (), "changes": ((3, "migrate-fails", 8),) * 3, "most": 0,
}  # fmt: skip
REAL_TIME = {
    turned_shapes_lost_with_their_task: ({**DYING, **CHAIN}, {"shapes", "goal", "changes"}),
    refused_version_not_told: ({**CHAIN, "changes": RARE, "most": 0}, {"changes", "goal"}),
    state_without_a_way_back_taken_back: (STAYING, {"task"}),
    bins_whose_way_back_fails_forgotten: ({**CHAIN, "changes": NO_WAY, "most": 0}, {"goal", "shapes", "task"}),
    way_back_that_fails_not_told_from_other_failures: ({**CHAIN, "changes": NO_WAY, "most": 0}, {"task"}),
    shape_left_behind_by_its_bin: ({**MOVING, **CHAIN, "most": 0}, {"shapes", "state", "task", "changes", "version"}),
    offsets_but_no_shapes_in_frames: ({**DYING, **CHAIN}, {"restore", "shapes"}),
}


@pytest.mark.parametrize("plant", MICRO_BATCH, ids=lambda plant: plant.__name__)
def test_a_planted_bug_of_a_change_is_found(plant):
    drawn, checks = MICRO_BATCH[plant]
    planted.find(plant, lambda seed: simulate(draw(seed, durability="process", autoscale="", **drawn)), checks, SEEDS)


@pytest.mark.parametrize("plant", REAL_TIME, ids=lambda plant: plant.__name__)
def test_a_bug_planted_in_a_change_of_real_time_mode_is_found(plant):
    find(plant, *REAL_TIME[plant])
