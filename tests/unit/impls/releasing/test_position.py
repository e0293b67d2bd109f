"""Where a stopped query stands: offsets, watermark and time as Spark's logs have them."""

import json

import pytest
from processing import Given, ProcessorRun
from pyspark.sql.streaming import StatefulProcessor

from impls.driver.journal import replace_bytes
from impls.errors import UsageError
from impls.protocol.coordinator import Coordinator
from impls.reading.stored import StoredQuery
from impls.releasing.position import Until, position_of
from impls.spark.topics import Topics
from impls.store.offsets import PARTITION_BITS

LINE = b'{"orders":{"0":7,"1":9}}'


class Nothing(StatefulProcessor):
    def init(self, handle):
        self._count = handle.getValueState("count", "n long")

    def handleInputRows(self, key, rows, timerValues):  # noqa: N802, N803
        self._count.update((len(list(rows)),))
        yield from ()

    def close(self):
        pass


Nothing.texts = ("n long",)


@pytest.fixture
def run(tmp_path):
    given = Given(Nothing(), "user string", "eventtime", "user string, at long", event="at", delay_ms=100)
    query = ProcessorRun(tmp_path, given)
    yield query
    query.checkpoint.close()


def note(run, *lines):
    """Writes what Spark notes of the last epoch."""
    folder = run.folder / "checkpoint" / "spark" / "offsets"
    folder.mkdir(parents=True, exist_ok=True)
    head = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 5}).encode()
    replace_bytes(folder / str(run.number), b"\n".join([b"v1", head, *lines, b"17"]))


def stored(run):
    return StoredQuery(run.folder / "checkpoint")


def test_offsets_time_and_watermarks_are_those_of_the_last_epoch_and_the_next_one(run):
    for number, ms in enumerate((1_000, 2_500, 2_000)):
        run.epoch([("a", ms)], now=10_000 + number)
        note(run, LINE)
    position = position_of(stored(run), 100, [])
    assert (position.epoch, position.batch, position.lines) == (2, 2, (LINE,))
    assert (position.before_ms, position.watermark_ms, position.now_ms) == (2_400, 2_400, 10_002)
    assert position.topics == [{"orders"}]
    assert position.head({"conf": {}}) == {"conf": {}, "batchWatermarkMs": 2_400, "batchTimestampMs": 10_002}
    run.epoch([("a", 4_000)])
    note(run, LINE)
    position = position_of(stored(run), 100, [])
    assert (position.before_ms, position.watermark_ms) == (2_400, 3_900)


def test_the_first_epoch_is_batch_1_as_its_state_is_written_behind_batch_0(run):
    run.epoch([("a", 50)])
    note(run, LINE)
    position = position_of(stored(run), 100, [])
    assert (position.epoch, position.batch, position.before_ms, position.watermark_ms) == (0, 1, 0, 0)


def test_a_query_that_was_stopped_while_records_waited_is_refused(tmp_path):
    run, users = (
        ProcessorRun(tmp_path, Given(Nothing(), "user string"), mechanism="partial-pause"),
        [(f"u{n}", 1) for n in range(200)],
    )
    run.epoch(users)
    run.move([(owner + 1) % 2 for owner in run.controller.location.tolist()])
    while not run.controller.queued.any():
        assert run.number < 100, "no record waits for a bin"
        run.epoch(users)
    note(run, LINE)
    run.checkpoint.close()
    with pytest.raises(UsageError, match=r"was stopped while bins moved, and \d+ records wait"):
        position_of(stored(run), 100, [])


class Reminding(Nothing):
    def init(self, handle):
        super().init(handle)
        self._handle = handle

    def handleInputRows(self, key, rows, timerValues):  # noqa: N802, N803
        yield from super().handleInputRows(key, rows, timerValues)
        self._handle.registerTimer(6_000)


def test_a_query_that_was_stopped_while_timers_waited_is_refused_until_they_have_run(tmp_path):
    given = Given(Reminding(), "user string", "eventtime", "user string, at long", event="at", delay_ms=100)
    run = ProcessorRun(tmp_path, given, mechanism="partial-pause")
    run.epoch([*((f"u{n}", 1_000) for n in range(200)), ("x", 20_000)])
    run.move([(owner + 1) % 2 for owner in run.controller.location.tolist()])
    run.epoch([])
    note(run, LINE)
    with pytest.raises(UsageError, match=r"was stopped while bins moved, and the timers of \d+ bins wait: start it"):
        position_of(stored(run), 100, [])
    for _ in range(3):
        run.epoch([])
    note(run, LINE)
    run.checkpoint.close()
    assert position_of(stored(run), 100, []).before_ms == 19_900


def test_a_watermark_that_the_spark_query_lacks_is_missed(run):
    for ms in (1_000, 2_000):
        run.epoch([("a", ms)])
    note(run, LINE)
    with pytest.raises(UsageError, match="has a watermark, and the Spark query has none: add its withWatermark"):
        position_of(stored(run), None, [])


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([b"-"], "that has had no data"),
        ([b'{"logOffset":3}'], "is not Kafka"),
        ([LINE, b'{"logOffset":3}'], "is not Kafka"),
        ([], "is not Kafka"),
    ],
)
def test_a_source_that_is_not_kafka_is_refused(run, lines, why):
    run.epoch([("a", 50)])
    note(run, *lines)
    with pytest.raises(UsageError, match=why):
        position_of(stored(run), 100, [])


def test_offsets_that_are_missing_or_damaged_are_named(run):
    run.epoch([("a", 50)])
    with pytest.raises(UsageError, match="offsets/0, which has the offsets behind epoch 0, cannot be read"):
        position_of(stored(run), 100, [])
    note(run, LINE)
    path = run.folder / "checkpoint" / "spark" / "offsets" / "0"
    path.write_bytes(path.read_bytes().replace(b'"batch', b"batch"))
    with pytest.raises(UsageError, match="offsets/0 is damaged"):
        position_of(stored(run), 100, [])


def test_the_epoch_before_the_end_is_asked_for_once():
    from impls.realtime.executor import RealTimeExecutor

    executor = RealTimeExecutor(switchboard=None)
    assert isinstance(executor._coordinator, Coordinator)
    assert [executor.begin_last(), executor.begin_last()] == [True, False]


def test_bins_that_have_applied_more_than_spark_has_read_are_seen_but_for_topics_that_are_gone():
    until = Until({7: 10}, Topics(former=(3,)))
    gone = 3 << PARTITION_BITS
    assert not until.is_passed({})
    assert not until.is_passed({7: 10, gone | 1: 99})
    assert until.is_passed({7: 11})
    assert until.is_passed({7: 10, 8: 1})  # a partition that has come since Spark noted its offsets
