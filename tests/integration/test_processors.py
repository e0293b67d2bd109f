"""StatefulProcessors by Spark's own transformWithState and by this project's: equal outputs and final state."""

import contextlib
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from cases import Case, found, send, step_records, tiered
from native_processor import Native
from own_processor import RESULT_PARTITIONS, VARIANTS, Own
from pyspark import cloudpickle
from side_by_side import run_side_by_side

from impls.spark.session import with_settings

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
CASES, FAILING = found(), found("fails_")
DEFAULT = {
    "running_count", "map_methods", "sessions", "initial_rows", "pandas_frames", "typed_state", "late_rows",
    "deduplicates", "fails_in_rows", "fails_output_type", "schema_evolves",
}  # fmt: skip


@pytest.fixture
def queries(spark, kafka, topic_factory, tmp_path):
    """queries(case) makes Spark's own query of a case and one of ours for each variant, with the input topic."""
    import own_processor

    cloudpickle.register_pickle_by_value(own_processor)
    made: list[Any] = []

    held = contextlib.ExitStack()

    def make(case: Case, variants=VARIANTS) -> tuple[str, Native, list[Own]]:
        held.enter_context(with_settings(spark, case.settings))
        topic = topic_factory(2)
        native = Native(case, spark, kafka, topic, tmp_path)
        wheres = [(kafka, topic, topic_factory(RESULT_PARTITIONS)) for _ in variants]
        own = [Own(case, spark, where, tmp_path, v) for where, v in zip(wheres, variants, strict=True)]
        made.extend([native, *own])
        return topic, native, own

    yield make
    for query in made:
        with contextlib.suppress(Exception):  # the test's own error is the one to see
            query.stop()
        query.close()
    held.close()
    cloudpickle.unregister_pickle_by_value(own_processor)


def begun(query: Any, case: Case) -> None:
    query.begin(case.processor())
    query.await_begun()


@pytest.mark.capability("running_count")
@pytest.mark.parametrize("name", tiered(CASES, DEFAULT))
def test_outputs_and_state_are_those_of_sparks_own_operator(queries, kafka, name):
    topic, native, own = queries(CASES[name])
    assert run_side_by_side(CASES[name], kafka, topic, native, own) == []
    assert own[-1].kills > 0


@pytest.mark.slow
def test_every_object_is_closed_behind_its_last_call(queries, kafka, tmp_path):
    """Each close tells how many calls there were; a call behind it would fail, and one without it be missing."""
    case = CASES["closes"]
    topic, native, own = queries(case, VARIANTS[:1])
    folders = [tmp_path / "closes" / query.name for query in (native, *own)]
    left = iter(folders)
    for folder in folders:
        folder.mkdir(parents=True)
    case_of = replace(case, processor=lambda: case.processor(str(next(left))))
    assert run_side_by_side(case_of, kafka, topic, native, own) == []
    told = [[int(line) for file in folder.iterdir() for line in file.read_text().splitlines()] for folder in folders]
    keys_per_step = [len(set(chunk)) for chunk in case.chunks]
    assert [sum(calls) for calls in told] == [sum(keys_per_step)] * 2


def classes(error: Exception) -> set[str]:
    """Spark's error classes that a message names, without the one that every failed query has."""
    return set(re.findall(r"\[([A-Z][A-Z_0-9.]+)\]", str(error))) - {"STREAM_FAILED"}


def failure(query: Any, do: Callable[[Any], None]) -> Exception | None:
    try:
        do(query)
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize("name", tiered(FAILING, DEFAULT))
def test_an_error_of_the_user_is_told_as_spark_tells_it_or_more_clearly(queries, kafka, name):
    case = FAILING[name]
    topic, native, (own,) = queries(case, VARIANTS[:1])
    failed = {query: failure(query, lambda query: begun(query, case)) for query in (native, own)}
    for step in range(len(case.chunks)):
        send(case, kafka, topic, step)
        total = (step + 1) * step_records(case)
        failed |= {q: failure(q, lambda query: query.finish(total)) for q in failed if failed[q] is None}  # noqa: B023
    assert failed[native] is not None
    assert failed[own] is not None, f"Spark says {failed[native]}"
    told = str(failed[own])
    clear = all(word in told for word in case.says)
    same = classes(failed[native]) and classes(failed[native]) <= classes(failed[own])
    assert clear or same, f"ours: {told}\n\nSpark's: {failed[native]}"
    assert own.handle is None or own.handle.ended(10)
