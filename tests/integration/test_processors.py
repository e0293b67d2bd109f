"""StatefulProcessors by Spark's own transformWithState and by this project's: equal outputs and final state."""

import contextlib
from typing import Any

import pytest
from cases import Case, found, send, step_records
from native_processor import Native
from own_processor import RESULT_PARTITIONS, VARIANTS, Own
from pyspark import cloudpickle

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
CASES, FAILING = found(), found("fails_")
DEFAULT = {"running_count", "map_methods", "sessions", "initial_rows", "pandas_frames"}  # of a fast run


@pytest.fixture
def queries(spark, kafka, topic_factory, tmp_path):
    """queries(case) makes Spark's own query of a case and one of ours for each variant, with the input topic."""
    import own_processor

    cloudpickle.register_pickle_by_value(own_processor)
    made: list[Any] = []

    def make(case: Case, variants=VARIANTS) -> tuple[str, Native, list[Own]]:
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
    cloudpickle.unregister_pickle_by_value(own_processor)


def run(case: Case, kafka: str, topic: str, native: Native, own: list[Own]) -> None:
    """Lets all queries take a case's steps; after each the outputs must be equal, in the end the states."""
    different: list[str] = []
    for step in range(len(case.chunks)):
        if step == 0 or step in case.replaced:
            start(case.replaced.get(step, case.processor), native, own)
        for query in own:
            query.disturb(step)
        send(case, kafka, topic, step)
        total = (step + 1) * step_records(case)
        native.finish(total)
        expected = native.outputs()
        for query in own:
            query.finish(total)
            different += differences(f"{query.name}, step {step}", expected, query.outputs())
    for query in (native, *own):
        query.stop()
    held = native.state()
    for query in own:
        for expected, got in zip(held, query.state(held), strict=True):
            different += differences(f"{query.name}, state {got.name}", expected.entries, got.entries)
    assert not different, "\n".join(different)


def start(processor: Any, native: Native, own: list[Own]) -> None:
    for query in (native, *own):
        query.stop()
        query.start(processor())


def differences(where: str, expected: list[str], got: list[str]) -> list[str]:
    """What one has and the other has not, each a line."""
    left = list(got)
    missing = [one for one in expected if one not in left or left.remove(one)]
    lines = [f"missing: {one}" for one in missing] + [f"too much: {one}" for one in left]
    return [f"{where}: {line}" for line in lines]


def of_default_run(names):
    return [name if name in DEFAULT else pytest.param(name, marks=pytest.mark.lengthy) for name in names]


@pytest.mark.parametrize("name", of_default_run(CASES))
def test_outputs_and_state_are_those_of_sparks_own_operator(queries, kafka, name):
    topic, native, own = queries(CASES[name])
    run(CASES[name], kafka, topic, native, own)
