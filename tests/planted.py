"""How a planted bug is looked for, and bugs that several simulations must find.

A search begins at the seed at which the bug was found last, which negative/seeds.json names, and goes through all
others. STORE_SEEDS=1 in the environment, in one process, writes that file anew.
"""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from impls.protocol.controller import Controller
from impls.protocol.report import Written
from impls.store.bins import copy_bin, read_size, write_size
from impls.store.tables import bin_range, drop_range
from impls.worker import opening, pull
from impls.worker.changelog import Changelog
from impls.worker.environment import Environment
from impls.worker.parts import Cause, Untrusted

_SEEDS = Path(__file__).parent / "negative" / "seeds.json"


def find(plant, outcome_of, checks, seeds):
    """Requires that a simulation finds a bug within so many seeds, by one of the checks, and nothing without it.

    outcome_of(seed) simulates; it returns None for a seed that is none.
    """
    name = os.environ["PYTEST_CURRENT_TEST"].rpartition("/")[2].partition(" ")[0]
    known = json.loads(_SEEDS.read_text())
    first = known.get(name, 0)
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        outcomes = map(outcome_of, (*range(first, seeds), *range(first)))
        found = next((outcome for outcome in outcomes if outcome is not None and outcome.violation), None)
    assert found is not None, f"{seeds} seeds did not find it"
    assert found.violation in checks, found.sentence
    sound = outcome_of(found.seed)
    assert sound.violation is None, f"it is not the bug that was found: {sound.sentence}"
    if os.environ.get("STORE_SEEDS"):
        _SEEDS.write_text(json.dumps({**known, name: found.seed}, indent=1, sort_keys=True) + "\n")


def stale_environment_accepted(patch):
    """An environment of an earlier epoch is taken for the one before."""

    def checked(meta, task, path):
        if meta is None:
            raise opening._UnusableError(Untrusted(Cause.MISSING))
        opening._check_owner(meta, task, path)
        return meta

    patch.setattr(opening, "_checked", checked)


def dropped_before_the_pull_is_observed(patch):
    plain = Controller.plan

    def plan(self, epoch, generation, now_ms=0):
        written = plain(self, epoch, generation, now_ms)
        return replace(written, drops=written.drops + tuple((p.bin, p.source) for p in written.plan.pulls))

    patch.setattr(Controller, "plan", plan)


def left_behind_by_its_bin(patch, kind):
    """A pull copies a bin without the entries of one kind."""

    def copy(source, txn, bin_, leaves=None):
        size = copy_bin(source, txn, bin_, leaves)
        entries, after = read_size(txn, bin_)
        write_size(txn, bin_, entries - drop_range(txn, *bin_range(kind, bin_)), after)
        return size

    patch.setattr(pull, "copy_bin", copy)


def results_not_sent_again(patch):
    """Those of a commit that has been made before."""
    plain = Environment._repeat_last

    def repeat_last(self):
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Environment, "send", lambda *_: None)
            plain(self)

    patch.setattr(Environment, "_repeat_last", repeat_last)


def frame_not_written_again(patch):
    """That of a commit that has been made before."""
    patch.setattr(Changelog, "again", lambda *_: Written())
