"""A native transformWithState is stopped, adopted and goes on here, with its values, lists, maps, timers and lives."""

import json
import sys
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pandas as pd
import pytest
from native_query import files_below, native_session, run_native, run_native_until, uncommit
from pyspark import cloudpickle
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import Row
from topics import json_rows, producer_for

pytestmark = [pytest.mark.spark, pytest.mark.lengthy]
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
BEGIN_MS = int(BEGIN.timestamp() * 1000)
USERS = [f"u{n}" for n in range(9)]
OUTPUT = "user string, kind string, n long, lasts array<int>, shops map<string, int>"


class Sessions(StatefulProcessor):
    """Keeps a count, all values and a count per shop; tells them again when a user's first timer fires."""

    def init(self, handle):
        self.handle = handle
        self.count = handle.getValueState("count", "n long, since timestamp")
        self.lasts = handle.getListState("lasts", "value int")
        self.shops = handle.getMapState("shops", "shop string", "n int")

    def handleInputRows(self, key, rows, timerValues):  # noqa: N802, N803
        for row in rows:
            if not self.count.exists():
                self.handle.registerTimer(BEGIN_MS + (row.value + 100) * 1000)
            before = self.count.get()
            self.count.update((1 if before is None else before[0] + 1, row.at if before is None else before[1]))
            self.lasts.appendValue((row.value,))
            self.shops.updateValue((row.shop,), ((self.shops.getValue((row.shop,)) or (0,))[0] + 1,))
        yield self._told(key[0], "rows")

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):  # noqa: N802, N803
        yield self._told(key[0], "timer")

    def _told(self, user, kind):
        lasts = [row[0] for row in self.lasts.get()]
        shops = {shop[0]: n[0] for shop, n in self.shops.iterator()}
        return Row(user=user, kind=kind, n=self.count.get()[0], lasts=lasts, shops=shops)

    def close(self):
        """Does nothing."""


class Tally(StatefulProcessor):
    """Counts in a value, a list and a map that live for an hour."""

    def init(self, handle):
        self.count = handle.getValueState("count", "n long", 3_600_000)
        self.lasts = handle.getListState("lasts", "value int", 3_600_000)
        self.shops = handle.getMapState("shops", "shop string", "n int", 3_600_000)

    def handleInputRows(self, key, rows, timerValues):  # noqa: N802, N803
        for part in rows:
            for row in part.itertuples():
                self.count.update(((self.count.get() or (0,))[0] + 1,))
                self.lasts.appendValue((int(row.value),))
                self.shops.updateValue((row.shop,), ((self.shops.getValue((row.shop,)) or (0,))[0] + 1,))
        shops = {shop[0]: n[0] for shop, n in self.shops.iterator()}
        lasts = [row[0] for row in self.lasts.get()]
        yield pd.DataFrame({"user": [key[0]], "kind": ["rows"], "n": [self.count.get()[0]], "lasts": [lasts],
                            "shops": [shops]})  # fmt: skip

    def close(self):
        """Does nothing."""


@pytest.fixture(autouse=True)
def sent_by_value():
    """Spark's Python workers cannot import this file."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    with suppress(ValueError):  # whoever pickles a processor takes its module out again
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


class Visits:
    """Visits in a topic, each a second behind the one before, and what is to be told of all of them."""

    def __init__(self, kafka, topic):
        self.kafka, self.topic, self.sent = kafka, topic, []
        self._producer = producer_for(kafka)

    def send(self, rounds, *, late=False):
        for _ in range(rounds):
            for user in USERS:
                n = len(self.sent)
                at = BEGIN - timedelta(days=1) if late else BEGIN + timedelta(seconds=n)
                visit = {"user": user, "shop": f"s{n % 4}", "value": n, "at": at.isoformat()}
                self._producer.produce(self.topic, json.dumps(visit), partition=n % 2)
                if not late:
                    self.sent.append(visit)
        self._producer.flush(10)

    def frame(self, spark):
        return json_rows(spark, self.kafka, self.topic, "user string, shop string, value int, at timestamp")

    def expected(self):
        out = {}
        for user in USERS:
            mine = [visit for visit in self.sent if visit["user"] == user]
            shops = Counter(visit["shop"] for visit in mine)
            out[user] = (len(mine), sorted(visit["value"] for visit in mine), dict(shops))
        return out


def told(values, kind):
    """The last row of a kind that each user has."""
    rows = [row for row in map(json.loads, values) if row["kind"] == kind]
    return {row["user"]: (row["n"], sorted(row["lasts"]), row["shops"]) for row in rows}


def await_told(reader, expected):
    """Waits until the last rows are those expected; fails when no further row comes."""
    values = reader.wait_for(1, "the first row")
    while told(values, "rows") != expected:
        values = reader.wait_for(len(values) + 1, f"the rows that are still others than {told(values, 'rows')}")
    return values


def test_values_lists_maps_timers_and_the_watermark_go_on_here(spark, kafka, topic_factory, tmp_path, results_of):
    import impls
    from impls.worker.output import Output

    visits, sink, native = Visits(kafka, topic_factory(2)), topic_factory(4), tmp_path / "native"
    session = native_session(spark)
    for _ in range(3):
        visits.send(2)
        frame = visits.frame(session).withWatermark("at", "0 seconds").groupBy("user")
        run_native(frame.transformWithState(Sessions(), OUTPUT, "update", "eventtime"), native)
    last, before = uncommit(native), files_below(native)
    adopted = impls.adopt(spark, native, tmp_path / "ours", bootstrap=kafka, processor="Sessions", bins=16, workers=2)
    assert (adopted.batch, adopted.planned) == (last - 1, True)
    assert files_below(native) == before
    visits.send(1, late=True)
    visits.send(1)
    with impls.transform_with_state(
        visits.frame(spark).withWatermark("at", "0 seconds").groupBy("user"), Sessions(), OUTPUT, "update", "eventtime",
        results=Output(kafka, sink, 4), state_dir=tmp_path / "state", checkpoint=tmp_path / "ours", workers=2, bins=16,
    ) as query:  # fmt: skip
        await_told(results_of(sink), visits.expected())
        query.rescale(workers=4)
        visits.send(8)
        values = await_told(results_of(sink), visits.expected())
        assert query.await_migration(60)
        while len(told(values, "timer")) < len(USERS):
            values = results_of(sink).wait_for(len(values) + 1, "the timers of all users")
    fired = Counter(row["user"] for row in map(json.loads, values) if row["kind"] == "timer")
    assert fired == dict.fromkeys(USERS, 1)


def test_lives_and_frames_go_on_here(spark, kafka, topic_factory, tmp_path, results_of):
    import impls
    from impls.worker.output import Output

    visits, sink, native = Visits(kafka, topic_factory(2)), topic_factory(4), tmp_path / "native"
    for _ in range(2):
        visits.send(2)
        grouped = visits.frame(native_session(spark)).groupBy("user")
        tallied = grouped.transformWithStateInPandas(Tally(), OUTPUT, "update", "processingtime")
        run_native_until(tallied, native, len(visits.sent))
    impls.adopt(spark, native, tmp_path / "ours", bootstrap=kafka, processor="Tally", pandas=True, bins=16, workers=2)
    visits.send(1)
    with impls.transform_with_state(
        visits.frame(spark).groupBy("user"), Tally(), OUTPUT, "update", "processingtime", pandas=True,
        results=Output(kafka, sink, 4), state_dir=tmp_path / "state", checkpoint=tmp_path / "ours", workers=2, bins=16,
    ) as query:  # fmt: skip
        await_told(results_of(sink), visits.expected())
        query.rescale(workers=3)
        visits.send(1)
        await_told(results_of(sink), visits.expected())
        assert query.await_migration(60)
