"""Bugs planted in what becomes of records that cannot be applied: the simulations of both modes find each of them."""

import sys
from pathlib import Path

import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1] / "simulation"))

from chaos.parameters import draw
from chaos.query import simulate
from planted import find
from planted_realtime import QUIET
from planted_realtime import find as find_in_real_time

from impls.worker import applying, replicas

REFUSED = {"operator": "chain", "refused": 0.3, "changes": (), "autoscale": ""}


def rows_of_its_record_go_with_a_row(patch):
    """One row of a record is wrong, and the others are left out too."""

    def without(task, table, report):
        known = {place[:2] for place in task.set_aside}
        places = zip(table.column("partition").to_pylist(), table.column("offset").to_pylist(), strict=True)
        return table.filter(pa.array([place not in known for place in places], pa.bool_()))

    patch.setattr(applying, "without_set_aside", without)


def standbys_repeat_what_an_owner_has_set_aside(patch):
    """Only the owner knows what it has set aside."""
    patch.setattr(replicas, "_follows", lambda task: task.spec.turns)


def test_rows_that_go_with_another_one_are_missed_in_real_time():
    find_in_real_time(rows_of_its_record_go_with_a_row, {**QUIET, **REFUSED, "rows": 9}, {"offsets", "once", "stuck"})


def test_standbys_that_repeat_refused_records_are_found_in_micro_batches():
    drawn = {**REFUSED, "faults": 0, "mechanism": "replicated-dataflow"}
    plant = standbys_repeat_what_an_owner_has_set_aside
    find(plant, lambda seed: simulate(draw(seed, durability="process", **drawn)), {"replica", "stuck"}, 200)
