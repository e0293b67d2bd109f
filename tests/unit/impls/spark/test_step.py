"""A task of Spark's for a seat: an empty one makes its process ready for a worker that comes to sit there."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from impls.operators import HashCount
from impls.protocol.order import EpochOrder
from impls.protocol.plan import EpochPlan, WrittenPlan
from impls.protocol.seats import Seating
from impls.spark import step
from impls.spark.readiness import NAME, SEAT
from impls.store.records import Results
from impls.worker.output import Output
from impls.worker.query import QuerySpec

BINS = 4


@pytest.fixture
def connected(monkeypatch):
    """Topics that this process was connected for, in the order in which it was."""
    topics = []
    monkeypatch.setattr(Output, "connect", lambda self: topics.append(self.topic))
    monkeypatch.setattr(step, "freeze_imports", lambda: None)
    monkeypatch.setattr(step, "_ready", set())
    monkeypatch.setattr(
        step.TaskContext, "get", lambda: SimpleNamespace(partitionId=lambda: 1, attemptNumber=lambda: 0)
    )
    return topics


def _answers(query, seats, tmp_path):
    plan = WrittenPlan(0, 1, 1, EpochPlan(np.zeros(BINS, np.int32)))
    spec = QuerySpec(query, BINS, HashCount(), Output("", f"{query}-out", 1), str(tmp_path))
    return list(step.run_step(spec, EpochOrder(plan, first=True, seating=Seating(seats)), iter([])))


def test_an_empty_seat_answers_nothing_and_connects_its_process_once_for_each_query(connected, tmp_path):
    for query in ("one", "one", "two"):
        assert _answers(query, (0, -1), tmp_path) == []
    assert connected == ["one-out", "two-out"]


def test_a_seat_with_a_worker_answers(connected, tmp_path):
    assert len(_answers("one", (-1, 0), tmp_path)) == 1
    assert connected == [], "it connects when it has results"


def test_what_the_join_of_seats_adds_is_no_part_of_a_record():
    table = pa.table({NAME: [7, 7], "bin": pa.array([3, None], pa.int32()), "key": [1, None], SEAT: [7, None]})
    own = step._own_rows(table)
    assert own.to_pylist() == [{"bin": 3, "key": 1}]
    assert own.schema.equals(step._own_rows(table.slice(0, 1)).schema)


def test_large_results_go_in_small_batches_and_small_ones_in_large():
    """A column of one Arrow batch ends at 2 GiB."""
    answer = pa.RecordBatch.from_pydict({"report": ["{}"], "cells": [b""]})
    for size, number, batches in ((4 << 20, 40, 3), (8, 60_000, 2)):
        results = Results(np.zeros(number, np.int32), [b"k"] * number, [bytes(size)] * number)
        *parts, last = step.with_results(answer, results)
        assert [len(parts), sum(len(part) for part in parts), last.num_rows] == [batches, number, 1]
        assert max(part.nbytes for part in parts) < 128 << 20
