"""Results on their way to a ForeachBatch: a worker's task yields them with its report, every attempt the same ones."""

import pickle
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from impls.errors import StateError, UsageError
from impls.operators import HashCount
from impls.operators.pipeline import pipeline_of
from impls.operators.steps import Filter
from impls.protocol.order import Answers, EpochOrder
from impls.protocol.plan import EpochPlan, WrittenPlan
from impls.protocol.report import Report
from impls.spark import step
from impls.spark.step import call_foreach_batch, schema_of
from impls.worker.output import Output
from impls.worker.query import QuerySpec
from impls.worker.sinks import ForeachBatch, Nowhere

BINS = 4


class Rows(HashCount):
    """Says that its results are rows."""

    output_schema = "n long"


@pytest.fixture
def task(monkeypatch):
    """What a task of Spark's is to a step; its attempt can be set."""
    found = SimpleNamespace(attempt=0)
    context = SimpleNamespace(partitionId=lambda: 0, attemptNumber=lambda: found.attempt)
    monkeypatch.setattr(step.TaskContext, "get", lambda: context)
    monkeypatch.setattr(step, "freeze_imports", lambda: None)
    return found


def _batch(keys):
    columns = {
        "bin": pa.array([key % BINS for key in keys], pa.int32()),
        "partition": pa.array([0] * len(keys), pa.int32()),
        "offset": pa.array(range(len(keys)), pa.int64()),
        "time": pa.nulls(len(keys), pa.int64()),
        "key": pa.array(keys, pa.int64()),
    }
    return pa.RecordBatch.from_pydict(columns)


def _key(key):
    return key.to_bytes(8, "big")


def _run(sink, tmp_path, keys):
    plan = WrittenPlan(0, 1, 1, EpochPlan(np.zeros(BINS, np.int32)))
    spec = QuerySpec("q", BINS, HashCount(), sink, str(tmp_path))
    batches = list(step.run_step(spec, EpochOrder(plan, first=True), iter([_batch(keys)])))
    return pa.Table.from_batches(batches).to_pylist()


def test_a_task_yields_its_results_and_then_its_report_and_a_second_attempt_the_same_results(task, tmp_path):
    sink = ForeachBatch(lambda _frame, _epoch: None)
    first = _run(sink, tmp_path, [1, 2, 1])
    assert [(row["key"], int.from_bytes(row["value"], "little")) for row in first[:-1]] == [(_key(1), 2), (_key(2), 1)]
    assert all(row["report"] is None for row in first[:-1])
    assert Report.from_json(first[-1]["report"]).results == 2
    assert first[-1]["key"] is None
    task.attempt = 1
    second = _run(sink, tmp_path, [1, 2, 1])
    assert second[:-1] == first[:-1]
    assert Report.from_json(second[-1]["report"]).repeated


def test_an_epoch_without_results_yields_a_report_alone(task, tmp_path):
    rows = _run(ForeachBatch(lambda _frame, _epoch: None), tmp_path, [])
    assert [row["report"] is None for row in rows] == [False]


def test_without_a_sink_a_task_yields_its_report_alone(task, tmp_path):
    rows = _run(Nowhere(), tmp_path, [1, 2])
    assert [sorted(row) for row in rows] == [["cells", "report"]]
    assert Report.from_json(rows[0]["report"]).results == 2


def test_only_a_job_for_a_function_has_columns_of_results():
    assert schema_of(Output("", "out", 1)).names == schema_of(Nowhere()).names == ["report", "cells"]
    assert schema_of(ForeachBatch(print)).names == ["report", "cells", "key", "value"]


def test_the_function_is_not_sent_to_executors():
    sink = ForeachBatch(lambda _frame, _epoch: None)  # a lambda cannot be pickled
    with pytest.raises(AssertionError, match="in the driver"):
        pickle.loads(pickle.dumps(sink)).function(None, 0)


def _answers(results):
    return Answers.of([(Report(0, results=results), np.empty(0))], build_ms=0.0, job_ms=0.0)


class _Frame:
    """A DataFrame as far as it is asked for results."""

    def where(self, _condition):
        return self

    def select(self, *names):
        return names


def test_the_function_gets_results_with_the_number_of_their_epoch_and_nothing_where_there_are_none():
    calls = []
    sink = ForeachBatch(lambda frame, epoch: calls.append((frame, epoch)))
    assert call_foreach_batch(sink, _Frame(), HashCount(), 7, _answers(0)) == 0.0
    assert call_foreach_batch(sink, _Frame(), HashCount(), 8, _answers(3)) > 0.0
    assert calls == [(("key", "value"), 8)]


def test_a_function_that_raises_ends_the_epoch_with_one_sentence_that_names_it():
    def fail(_frame, _epoch):
        raise ValueError("no such table.\nDetails follow")

    with pytest.raises(StateError, match=r"failed in epoch 7 with ValueError: no such table\. Nothing is lost") as told:
        call_foreach_batch(ForeachBatch(fail), _Frame(), HashCount(), 7, _answers(1))
    assert isinstance(told.value.__cause__, ValueError)


def test_a_pipeline_has_the_output_schema_of_its_operator():
    filtered = pipeline_of([Filter("all", lambda _row: True)], Rows())
    assert filtered.output_schema == "n long"
    assert HashCount().output_schema is None


def test_real_time_mode_refuses_a_function_in_one_sentence():
    from impls.api import _sink

    with pytest.raises(UsageError, match="send them to Kafka"):
        _sink(ForeachBatch(print), "real-time")
    assert isinstance(_sink(None, "real-time"), Nowhere)
