"""State goes back to Spark: byte for byte what was adopted, and Spark's own operator goes on with what ran here."""

import contextlib

import pytest
from cases import found, send, step_records, tiered
from native_processor import PARTITIONS, Native, families_in
from own_processor import RESULT_PARTITIONS, VARIANTS, Own
from pyspark import cloudpickle
from released_query import Released
from side_by_side import run_side_by_side

import impls
from impls.spark.session import with_settings

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
CASES = found()
UNREAD = {"deletes_state"}  # Spark's reader of all column families fails where its own operator has deleted a list


@pytest.fixture
def case_of(spark):
    """case_of(name) is the case of a name; the session has its settings until the test ends."""
    with contextlib.ExitStack() as held:

        def case(name):
            held.enter_context(with_settings(spark, CASES[name].settings))
            return CASES[name]

        yield case


@pytest.mark.parametrize("name", tiered(CASES.keys() - UNREAD, {"map_methods"}))
def test_what_was_adopted_is_released_byte_for_byte(spark, kafka, topic_factory, tmp_path, case_of, name):
    case, topic = case_of(name), topic_factory(2)
    native = Native(case, spark, kafka, topic, tmp_path)
    for step in range(len(case.chunks)):
        if step == 0 or step in case.replaced:
            native.stop()
            processor = case.replaced.get(step, case.processor)
            native.begin(processor())
            native.await_begun()
        send(case, kafka, topic, step)
        native.finish((step + 1) * step_records(case))
    native.stop()
    before, ours, made = families_in(spark, native.folder), tmp_path / "ours", processor()
    impls.adopt(spark, native.folder, ours, bootstrap=kafka, processor=type(made).__name__, pandas=case.pandas, bins=16)
    mode, into = case.mode.lower(), tmp_path / "released"
    impls.release(native.frame(made), ours, into, output_mode=mode, partitions=PARTITIONS + 1)
    assert families_in(spark, into) == before


@pytest.mark.parametrize("name", tiered(CASES, {"typed_state"}))
def test_sparks_own_operator_goes_on_with_what_began_here(spark, kafka, topic_factory, tmp_path, case_of, name):
    case = case_of(name)
    _goes_on(case, spark, kafka, topic_factory, tmp_path, max(1, len(case.chunks) // 2))


@pytest.mark.parametrize("name", tiered(CASES, {"running_count", "processing_timers"}))
def test_sparks_own_operator_goes_on_with_what_began_there(spark, kafka, topic_factory, tmp_path, case_of, name):
    """Adopted, run here with rescales and workers killed, and released: its rows are those of an undisturbed query."""
    case = case_of(name)
    _goes_on(case, spark, kafka, topic_factory, tmp_path, max(2, len(case.chunks) - 1), adopted=True)


def _goes_on(case, spark, kafka, topic_factory, tmp_path, step, *, adopted=False):
    import own_processor

    cloudpickle.register_pickle_by_value(own_processor)
    topic, results = topic_factory(2), topic_factory(RESULT_PARTITIONS)
    undisturbed, released, first = (Native(case, spark, kafka, topic, tmp_path / str(which)) for which in range(3))
    own = Own(case, spark, (kafka, topic, results), tmp_path, VARIANTS[-1])
    query = Released(case, spark, own, released, step, first if adopted else None)
    try:
        assert run_side_by_side(case, kafka, topic, undisturbed, [query]) == []
    finally:
        for each in (undisturbed, released, first, own):
            with contextlib.suppress(Exception):  # the test's own error is the one to see
                each.stop()
        query.close()
        cloudpickle.unregister_pickle_by_value(own_processor)
