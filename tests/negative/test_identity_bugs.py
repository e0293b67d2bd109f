"""Bugs planted in the identity of a row: the simulation draws topics, topics made anew and records of several rows."""

import numpy as np
import pytest
from planted_realtime import DYING, find

from impls.store import offsets
from impls.store.offsets import Offsets

_PARTITION = (1 << 20) - 1  # the bits of an input partition that do not name its topic


def topics_taken_for_one(patch):
    plain = Offsets._places
    patch.setattr(Offsets, "_places", lambda self, partitions: plain(self, partitions & _PARTITION))


def rows_of_a_record_taken_for_one(patch):
    plain = offsets._columns

    def columns(table):
        bins, partitions, at, rows = plain(table)
        return bins, partitions, at, None if rows is None else np.zeros_like(rows)

    patch.setattr(offsets, "_columns", columns)


BUGS = {
    topics_taken_for_one: ({"anew": 0.5, "operator": "hash", **DYING}, {"once", "offsets", "results", "state", "task"}),
    rows_of_a_record_taken_for_one: ({"rows": 9, "operator": "hash", **DYING}, {"once", "offsets", "results", "state"}),
}  # fmt: skip


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_bug_planted_in_the_identity_of_a_row_is_found(plant):
    find(plant, *BUGS[plant])
