"""Event time, late records, frames of pandas, and moves: what a processor computes does not depend on the moves."""

import datetime as dt
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processing import Given, ProcessorRun, schema
from pyspark.errors import PySparkRuntimeError
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import Row
from timed import close_all, spread

from impls import catalog


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    close_all()


class Sessions(StatefulProcessor):
    """Counts a user's records, and gives the count 100 ms of event time after the last one, at that time."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.count = handle.getValueState("count", schema("n long, until long"))
        self.times = handle.getListState("times", schema("at long"))

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        n, until = self.count.get() or (0, 0)
        for row in rows:
            self.times.appendValue((row.at,))
            if until:
                self.handle.deleteTimer(until)
            n, until = n + 1, max(until, row.at + 100)
            self.handle.registerTimer(until)
        self.count.update((n, until))
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        (n, until), at = self.count.get() or (0, 0), expiredTimerInfo.getExpiryTimeInMs()
        assert at == until <= timerValues.getCurrentWatermarkInMs()
        times = ",".join(str(time) for (time,) in self.times.get())
        yield Row(user=key.user, n=n, times=times, at=dt.datetime.fromtimestamp(at / 1000, dt.UTC))
        self.count.clear()
        self.times.clear()


def sessions(folder: Path, **more: Any) -> ProcessorRun:
    given = Given(
        Sessions(), "user string, n long, times string, at timestamp", "eventtime", "user string, at long",
        event="at", delay_ms=50, event_column="at",
    )  # fmt: skip
    return ProcessorRun(folder, given, **more)


def test_records_come_before_the_timers_of_their_epoch_and_late_ones_go_by_the_watermark_before(tmp_path: Path) -> None:
    query = sessions(tmp_path)
    assert query.values(("ann", 1000)) == []  # the watermark will be 950
    assert query.values(("bob", 1200), ("ann", 800)) == []  # late go those up to 0, the watermark before
    # the watermark is 1150 now: ann's session ends with it, but the records of the epoch come first
    ended = {"user": "ann", "n": 3, "times": "1000,800,1050", "at": "1970-01-01T00:00:01.150Z"}
    assert query.values(("ann", 940), ("ann", 1050), ("bob", 900)) == [ended]
    assert query.total("late") == 2  # up to 950
    assert query.values(("cid", 5000)) == []
    assert query.values() == [{"user": "bob", "n": 1, "times": "1200", "at": "1970-01-01T00:00:01.300Z"}]


def rows_of(seed: int, epoch: int) -> list[tuple[str, int]]:
    random = np.random.default_rng([seed, epoch])
    base = epoch * 60
    return [(f"u{random.integers(12)}", base + int(random.integers(-80, 120))) for _ in range(random.integers(0, 9))]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("mechanism", [n for n in catalog.names() if n not in {"external-state", "native-repartition"}])
@pytest.mark.parametrize("seed", [1, 2])
def test_moves_change_nothing(tmp_path: Path, mechanism: str, seed: int) -> None:
    still, moved = sessions(tmp_path / "still"), sessions(tmp_path / "moved", mechanism=mechanism)
    for epoch in range(1, 25):
        rows = rows_of(seed, epoch)
        still.epoch(rows)
        if mechanism != "none" and epoch % 6 == 2:
            moved.move(spread(seed + epoch, 3))
        moved.epoch(rows)
        if epoch == 13:
            moved.restart()
            moved.lose(0)
    for query in (still, moved):
        query.epoch([("end", 100_000)])
        query.settle()
    assert len(still.results()) > 20
    assert moved.multiset() == still.multiset()


class Epochs(StatefulProcessor):
    """Gives, 10 ms of processing time after a record, when it came."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        for _ in rows:
            self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 10)
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        yield Row(user=key.user, at=expiredTimerInfo.getExpiryTimeInMs())


def test_timers_of_processing_time_move_with_their_bin(tmp_path: Path) -> None:
    given = Given(Epochs(), "user string, at long", "processingtime", "user string, at long")
    query = ProcessorRun(tmp_path, given, mechanism="megaphone-fluid")
    for epoch in range(1, 20):
        if epoch % 5 == 1:
            query.move(spread(epoch, 3))
        query.epoch([(f"u{epoch % 7}", 0)] if epoch < 15 else [], now=epoch * 7)
    for _ in range(20):
        query.epoch(now=1000)
    assert Counter(value["at"] for value in query.results()) == Counter(epoch * 7 + 10 for epoch in range(1, 15))


class Frames(StatefulProcessor):
    """Sums of frames."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.total = handle.getValueState("total", schema("n long"))

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        import pandas as pd

        (total,) = self.total.get() or (0,)
        for frame in rows:
            assert list(frame.columns) == ["user", "n", "x"]
            total += frame["n"].sum()
        self.total.update((total,))
        yield pd.DataFrame({"n": [total], "user": [key[0]]})
        assert timerValues.getCurrentProcessingTimeInMs() == -1


def test_frames_of_pandas(tmp_path: Path) -> None:
    given = Given(Frames(), "user string, n long", columns="user string, n long, x double", pandas=True)
    query = ProcessorRun(tmp_path, given)
    rows = [("ann", 1, 0.5), ("bob", 2, None), ("ann", 3, 1.5)]
    assert sorted(query.values(*rows), key=str) == [{"user": "ann", "n": 4}, {"user": "bob", "n": 2}]
    assert query.values(("ann", 5, None)) == [{"user": "ann", "n": 9}]


class Echo(StatefulProcessor):
    """Gives its records again."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        for row in rows:
            yield Row(user=key[0], when=dt.datetime.fromtimestamp((row.at - 100) / 1000, dt.UTC))


def test_output_before_the_watermark_of_the_epoch_before_fails_as_in_spark(tmp_path: Path) -> None:
    given = Given(Echo(), "user string, when timestamp", "eventtime", "user string, at long", event="at",
                  event_column="when")  # fmt: skip
    query = ProcessorRun(tmp_path, given)
    assert query.values(("ann", 1_334)) == [{"user": "ann", "when": "1970-01-01T00:00:01.234Z"}]
    assert query.values(("ann", 1_333)) == [{"user": "ann", "when": "1970-01-01T00:00:01.233Z"}]  # 1,334 is new here
    assert query.values(("ann", 1_435)) == [{"user": "ann", "when": "1970-01-01T00:00:01.335Z"}]
    with pytest.raises(PySparkRuntimeError, match="EMITTING_ROWS_OLDER_THAN_WATERMARK"):
        query.epoch([("ann", 1_434)])  # the row is at the watermark, and late for who reads it


def test_timers_of_event_time_are_of_ms_and_those_of_processing_time_wait_for_no_watermark(tmp_path: Path) -> None:
    for mode, unit in (("eventtime", 1000), ("processingtime", 0)):
        given = Given(Echo(), "user string, when timestamp", mode, "user string, at long", event="at")  # type: ignore[arg-type]
        assert ProcessorRun(tmp_path / mode, given).operator.timer_unit == unit
