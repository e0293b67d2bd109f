"""Bugs planted in the identity of a row: the simulation draws topics, topics made anew and records of several rows."""

import numpy as np
import pytest
from planted_realtime import DYING, MOVING, QUEUEING, find

from impls.store import offsets
from impls.store.numbers import Numbers
from impls.store.offsets import Offsets
from impls.store.records import ROW

_PARTITION = (1 << 20) - 1  # the bits of an input partition that do not name its topic


def topics_taken_for_one(patch):
    plain = Offsets._places
    patch.setattr(Offsets, "_places", lambda self, partitions: plain(self, partitions & _PARTITION))


def rows_of_a_record_taken_for_one(patch):
    plain = offsets._columns

    def columns(table):
        *places, rows = plain(table)
        return (*places, np.zeros_like(rows) if ROW in table.column_names else rows)

    patch.setattr(offsets, "_columns", columns)


def repeats_of_results_taken_for_new_ones(patch):
    patch.setattr(Numbers, "new", lambda _, table: table)


def results_that_waited_forgotten_within_a_commit(patch):
    patch.setattr(Numbers, "_known", lambda self, pair: self._stored(pair))


def numbers_of_a_failed_commit_kept(patch):
    def begin(self, txn):
        self._txn = txn

    patch.setattr(Numbers, "begin", begin)


def numbers_remembered_of_a_bin_that_moves(patch):
    patch.setattr(Numbers, "forget", lambda self, bins: None)


def numbers_of_what_an_operator_fails_on_not_written(patch):
    patch.setattr(Numbers, "moved", False)


LINKED = {"linked": 0.3, "rows": 1, "operator": "hash", "most": 0}
BUGS = {
    topics_taken_for_one: ({"anew": 0.5, "operator": "hash", **DYING}, {"once", "offsets", "results", "state", "task"}),
    rows_of_a_record_taken_for_one: ({"rows": 9, "operator": "hash", **DYING}, {"once", "offsets", "results", "state"}),
    repeats_of_results_taken_for_new_ones: (LINKED, {"once", "results"}),
    results_that_waited_forgotten_within_a_commit: ({**QUEUEING, **LINKED, "records": 300}, {"once", "results"}),
    numbers_of_a_failed_commit_kept: (
        {**LINKED, "operator": "chain", "changes": ((2, "rare", 1), (6, "rare", 2)), "records": 300},
        {"once", "reports", "results"},
    ),
    numbers_of_what_an_operator_fails_on_not_written: (
        {**LINKED, **DYING, "operator": "chain", "refused": 0.5, "records": 300}, {"offsets"},
    ),
    numbers_remembered_of_a_bin_that_moves: ({**MOVING, **LINKED, "records": 300}, {"once", "results", "task"}),
}  # fmt: skip


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_bug_planted_in_the_identity_of_a_row_is_found(plant):
    find(plant, *BUGS[plant])
