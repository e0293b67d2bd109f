"""Bugs planted where a map is full: the simulation draws maps of a few pages, for workers and for their replicas."""

import lmdb
import pytest
from planted_realtime import DYING, MOVING, find

from impls.worker import replicas


def full_map_of_replicas_taken_for_the_workers_own(patch):
    plain = replicas._keep

    def keep(*given):
        try:
            plain(*given)
        except replicas._FullError as error:
            raise lmdb.MapFullError from error

    patch.setattr(replicas, "_keep", keep)
    patch.setattr(replicas, "_failed", lambda _task, error: error)


REPLICATING = {**DYING, "mechanism": "rhino", "options": {}, "commands": MOVING["commands"], "operator": "hash"}
BUGS = {
    full_map_of_replicas_taken_for_the_workers_own: (REPLICATING, {"task", "stuck", "busy", "reports", "driver"}),
}  # fmt: skip


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_bug_planted_where_a_map_is_full_is_found(plant):
    find(plant, *BUGS[plant])
