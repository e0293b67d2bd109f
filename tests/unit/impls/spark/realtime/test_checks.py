"""What real-time mode cannot do is refused in one sentence that says what to use instead."""

from types import SimpleNamespace
from typing import Any

import pyspark
import pytest

from impls.errors import UsageError
from impls.spark.identity import Identified
from impls.spark.realtime.settings import real_time_settings, real_time_threads
from impls.spark.realtime.start import check_real_time


class Leaves(list[Any]):
    """A sequence of Scala's."""

    def size(self) -> int:
        return len(self)

    def apply(self, place: int) -> Any:
        return self[place]


def source(name: str, *, streaming: bool = True, **options: str) -> Any:
    return SimpleNamespace(isStreaming=lambda: streaming, sourceName=lambda: name, extraOptions=lambda: options)


def frame(*leaves: Any, master: str = "local[6,4]", sql: str = "key", **changed: str) -> Any:
    settings = {**real_time_settings(), **changed}
    analyzed = SimpleNamespace(
        collectLeaves=lambda: Leaves(leaves or [source("kafka")]),
        children=Leaves,
        expressions=lambda: Leaves([SimpleNamespace(sql=lambda: sql)]),
    )
    context = SimpleNamespace(master=master, getConf=lambda: settings)
    execution = SimpleNamespace(analyzed=lambda: analyzed)
    return SimpleNamespace(
        sparkSession=SimpleNamespace(sparkContext=context), _jdf=SimpleNamespace(queryExecution=lambda: execution)
    )


def refused(df: Any, **more: Any) -> str:
    with pytest.raises(UsageError) as caught:
        check_real_time(Identified(df), **{"checkpoint": "/there", "log_dir": None, **more})
    said = str(caught.value)
    assert said.count(". ") == 0, "it is one sentence"
    return said


def test_what_it_can_do_is_not_refused():
    check_real_time(Identified(frame()), checkpoint="/there", log_dir="file:///elsewhere")
    df = frame(source("kafka"), source("parquet", streaming=False))
    check_real_time(Identified(df), checkpoint="/there", log_dir=None)


def test_rows_in_an_order_that_may_change_are_refused():
    with pytest.raises(
        UsageError, match="which Join may change when the record is read again: do that in the operator"
    ):
        check_real_time(Identified(frame(), unordered="Join"), checkpoint="/there", log_dir=None)


def test_the_time_of_an_expression_is_refused():
    with pytest.raises(UsageError, match="now is another time when a record is read again: take Kafka's timestamp"):
        check_real_time(Identified(frame(sql="now()")), checkpoint="/there", log_dir=None)


def test_what_it_cannot_do_is_refused_with_what_to_use_instead(monkeypatch):
    assert refused(frame(master="spark://host:7077")).endswith('use mode="micro-batch" on a cluster.')
    assert refused(frame(), checkpoint="s3://b/c").endswith('not in s3://b/c: use mode="micro-batch" there.')
    assert refused(frame(), log_dir="gs://b/c").endswith('not in gs://b/c: use mode="micro-batch" there.')
    assert refused(frame(source("kafka"), source("rate"))).endswith('the source rate: use mode="micro-batch" for it.')
    monkeypatch.setattr(pyspark, "__version__", "4.2.0")
    assert "needs pyspark 4.3, this is 4.2.0" in refused(frame())


@pytest.mark.parametrize("name", sorted(real_time_settings()))
def test_a_session_without_one_of_the_settings_is_refused(name):
    assert f"{name}={real_time_settings()[name]}" in refused(frame(**{name: "another"}))


def test_all_tasks_of_a_query_run_at_once_and_two_threads_are_left():
    assert real_time_threads(partitions=3, slots=4) == 9


def test_an_option_that_bounds_a_batch_is_refused():
    assert "leave the option minOffsetsPerTrigger out" in refused(frame(source("kafka", minOffsetsPerTrigger="5")))
