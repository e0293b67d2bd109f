"""What `read_state` gives of each kind of operator, and what it says of a checkpoint that has no state to read."""

import datetime as dt
import json
import math
import shutil
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from changed import ChangedQuery, Fields, Tally, from_fields, some, to_fields
from processing import Given, ProcessorRun, schema
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import Row, StringType, StructField, StructType, TimestampType
from timed import BINS, TimedRun, close_all, read_both_ways

import impls
from impls.aggregation import GROUPING_KEY, KeyColumns, with_windows
from impls.errors import StateError, UsageError
from impls.operators import Aggregate, DenseCount, HashCount, Operator
from impls.operators.aggregates.operator import END, EVENT
from impls.operators.aggregates.rows import WINDOW, key_type
from impls.operators.base import Effects
from impls.processor.keys import KeyCodec
from impls.reading.state import read_state, state_at
from impls.reading.texts import is_of_key, json_text, write_parquet
from impls.store.hashing import hash_bytes


@pytest.fixture(autouse=True)
def _closed():
    yield
    close_all()


def values(run, epoch=None):
    frame = read_both_ways(run) if epoch is None else read_state(run.folder / "checkpoint", epoch)
    assert set(frame.kind) <= {"value"}
    return dict(zip(frame.key, frame.value, strict=True))


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        (HashCount(preload=3), {0: 0, 1: 2, 2: 0, -5: 1}),
        (DenseCount(40), {n: {1: 2, 35: 1}.get(n, 0) for n in range(40)}),
    ],
    ids=["hash", "dense"],
)
def test_counts(tmp_path, operator, expected):
    run = TimedRun(tmp_path, operator, key="long")
    if isinstance(operator, DenseCount):
        run.table = lambda rows: dense(operator, rows)
    run.epoch([(0, 1, {}), (0, 1, {}), (0, 35 if isinstance(operator, DenseCount) else -5, {})])
    assert values(run) == expected


def dense(operator, rows):
    keys = np.array([key for _, key, _ in rows], np.int64)
    columns = {"bin": (keys // operator.per_bin(BINS)).astype(np.int32), "key": keys}
    zeros = np.zeros(len(keys), np.int64)
    return pa.table({**columns, "partition": zeros.astype(np.int32), "offset": np.arange(len(keys)), "time": zeros})


def test_a_function_of_records_has_its_values_under_keys_of_the_column(tmp_path):
    run = TimedRun(tmp_path, Tally(), key="string")
    long, longer = b"k" * 479, b"k" * 480
    names = [b"ann", "zoé".encode(), b"ann", b"\xff", long, longer]
    run.epoch([(0, name, {"value": 2 + n}) for n, name in enumerate(names)])
    assert values(run) == {"ann": 6, "zoé": 3, "\\xff": 5, long.decode(): 6, longer.decode(): 7}


class Own(Tally):
    """Has an encoding of its own."""

    def dump(self, value):
        return str(value).encode()[::-1]

    def load(self, raw):
        return int(raw[::-1])


def test_values_of_an_encoding_that_only_the_operator_knows_are_bytes(tmp_path):
    run = TimedRun(tmp_path, Own())
    run.epoch([(0, b"ann", {"value": 12})])
    assert values(run) == {b"ann": b"21"}


def test_aggregates_are_results_with_the_types_of_their_columns(tmp_path):
    sums = Aggregate({"user": "string"}, {"n": "count(*)", "mean": "avg(price)"}, {"price": "decimal(5,2)"})
    run = TimedRun(tmp_path, sums, key="string")
    run.table = lambda rows: pa.table(
        {
            "bin": pa.array([hash_bytes(key) * BINS >> 64 for key, _ in rows], pa.int32()),
            "partition": pa.array([0] * len(rows), pa.int32()), "offset": pa.array(range(len(rows)), pa.int64()),
            "time": pa.nulls(len(rows), pa.int64()), "key": pa.array([key for key, _ in rows], pa.binary()),
            "user": [key.decode() for key, _ in rows],
            "price": pa.array([price for _, price in rows], pa.decimal128(5, 2)),
        }
    )  # fmt: skip
    run.epoch([(b"ann", Decimal("1.50")), (b"ann", Decimal("2.25")), (b"bob", None)])
    assert values(run) == {"ann": Row(n=2, mean=Decimal("1.875000")), "bob": Row(n=1, mean=None)}


def test_a_window_of_a_long_key_has_the_key(tmp_path):
    counts = Aggregate({"window": WINDOW, "user": "string"}, {"n": "count(*)"}, {})
    run = TimedRun(tmp_path, with_windows(counts, 0, None), key="binary")
    run.table = lambda rows: windowed(rows, run.number * 100)
    run.epoch([("ann", 3), ("u" * 500, 3), ("bob", 4)])
    group_by_columns(tmp_path)
    found = values(run)
    assert {key.user: value.n for key, value in found.items()} == {"ann": 1, "u" * 500: 1, "bob": 1}


def group_by_columns(folder):
    """Names the key as `impls.aggregate` does."""
    path = folder / "checkpoint" / "rescale" / "query.json"
    path.write_text(path.read_text().replace('"key": "key"', f'"key": "{GROUPING_KEY}"'))


def second(n):
    return dt.datetime.fromtimestamp(n, dt.UTC)


KEY = StructType(
    [
        StructField("window", StructType([StructField(part, TimestampType()) for part in ("start", "end")])),
        StructField("user", StringType()),
    ]
)


def windowed(rows, offset):
    """Records of windows of ten seconds, as `impls.aggregate` prepares them; a row is (user, second)."""
    windows = [(second(at // 10 * 10), second(at // 10 * 10 + 10)) for _, at in rows]
    micros = KeyCodec(StructType.fromJson(json.loads(KEY.json().replace('"timestamp"', '"long"'))))
    keys = [
        micros.encode(((int(begin.timestamp()) * 1_000_000, int(end.timestamp()) * 1_000_000), user))
        for (begin, end), (user, _) in zip(windows, rows, strict=True)
    ]
    return pa.table(
        {
            "bin": pa.array([hash_bytes(key) * BINS >> 64 for key in keys], pa.int32()),
            "partition": pa.array([0] * len(rows), pa.int32()),
            "offset": pa.array(range(offset, offset + len(rows)), pa.int64()),
            "time": pa.nulls(len(rows), pa.int64()), "key": pa.array(keys, pa.binary()),
            "window": pa.array([{"start": begin, "end": end} for begin, end in windows], key_type(WINDOW)),
            "user": [user for user, _ in rows],
            EVENT: pa.array([at * 1_000_000 for _, at in rows], pa.int64()),
            END: pa.array([int(end.timestamp()) * 1_000_000 for _, end in windows], pa.int64()),
        }
    )  # fmt: skip


@pytest.mark.parametrize("appended", [False, True])
def test_windows_are_there_until_the_watermark_has_passed_them(tmp_path, monkeypatch, appended):
    counts = Aggregate({"window": WINDOW, "user": "string"}, {"n": "count(*)"}, {})
    run = TimedRun(tmp_path, with_windows(counts, 0, KEY if appended else None))
    run.table = lambda rows: windowed(rows, run.number * 100)
    run.epoch([("ann", 3), ("ann", 7), ("bob", 12)])
    group_by_columns(tmp_path)

    def key(begin, user):
        return Row(window=Row(start=second(begin), end=second(begin + 10)), user=user)

    assert values(run) == {key(0, "ann"): Row(n=2), key(10, "bob"): Row(n=1)}
    run.epoch([("bob", 13)])  # the watermark is 12 s
    assert values(run) == {key(10, "bob"): Row(n=2)}
    assert json_text(key(10, "bob")) == (
        '{"window":{"start":"1970-01-01T00:00:10+00:00","end":"1970-01-01T00:00:20+00:00"},"user":"bob"}'
    )
    assert isinstance(KeyColumns(KEY)([]), pa.Table)


class Visits(StatefulProcessor):
    """Keeps a user's last number, all numbers and their sums by parity, for a second each."""

    def init(self, handle):
        self.last = handle.getValueState("last", schema("n long"), 1_000)
        self.each = handle.getListState("each", schema("n long"), 1_000)
        self.sums = handle.getMapState("sums", schema("odd string"), schema("n long"), 1_000)

    def handleInputRows(self, key, rows, timerValues):  # noqa: N802, N803
        for row in rows:
            self.last.update((row.n,))
            self.each.appendValue((row.n,))
            odd = ("odd" if row.n % 2 else "even",)
            self.sums.updateValue(odd, ((self.sums.getValue(odd) or (0,))[0] + row.n,))
        return iter(())


@pytest.mark.parametrize("name", ["ann", "ann" * 70])
def test_what_has_expired_is_absent_before_it_is_deleted(tmp_path, name):
    run = ProcessorRun(tmp_path, Given(Visits(), "user string", "processingtime"))
    run.epoch([(name, 1), (name, 2)], now=10_000)
    run.epoch([(name, 4)], now=10_600)
    ann = Row(user=name)

    def rows():
        return [tuple(row)[1:] for row in read_both_ways(run).itertuples(index=False)]

    assert set(rows()) == {
        (ann, "value", "last", None, Row(n=4)), (ann, "map", "sums", Row(odd="odd"), Row(n=1)),
        (ann, "map", "sums", Row(odd="even"), Row(n=6)),
        *((ann, "list", "each", i, Row(n=n)) for i, n in enumerate([1, 2, 4])),
    }  # fmt: skip
    run.epoch([("bob", 8)], now=11_000)
    assert {row for row in rows() if row[0] == ann} == {
        (ann, "value", "last", None, Row(n=4)), (ann, "map", "sums", Row(odd="even"), Row(n=6)),
        (ann, "list", "each", 0, Row(n=4)),
    }  # fmt: skip
    run.epoch(now=12_000)
    assert rows() == []
    with state_at(run.folder / "checkpoint") as state:
        assert not any(state.entries(bin_) for bin_ in range(BINS)), "nothing is left"


class Prepared(Operator):
    """Begins with state of its own."""

    def create(self, bin_, bins, state):
        state.create_entries(bin_, [(b"all", b"0")])

    def run(self, state, inputs):
        return Effects()


def test_what_only_the_operator_creates_is_read_from_snapshots_alone(tmp_path):
    run = TimedRun(tmp_path, Prepared(), replay_epochs=2)
    run.epoch([(0, b"ann", {})])
    with pytest.raises(StateError, match="only the operator knows with what it began"):
        values(run)
    for number in range(2 * BINS):
        run.epoch([(0, b"key %d" % n, {}) for n in range(number, number + 40)])
    assert values(run, run.number) == {b"all": b"0"}


def test_numbers_that_are_none_in_json_are_strings():
    assert json_text([math.nan, -math.inf, 1.5, b"x", {1: Decimal("1.0")}]) == '["nan","-inf",1.5,"eA==",[[1,"1.0"]]]'


class Eight(Tally):
    """Has sums of eight bytes, as counts are."""

    def dump(self, value):
        return value.to_bytes(8, "little") if isinstance(value, int) else super().dump(value)

    def load(self, raw):
        return int.from_bytes(raw, "little")

    def state_form(self):
        return HashCount().state_form()


@pytest.mark.parametrize(("first", "turned"), [(Tally(), dict), (Eight(), bytes)], ids=["json", "counts"])
def test_state_that_a_version_of_the_pipeline_has_turned_is_read_as_what_it_is(tmp_path, first, turned):
    query = ChangedQuery(tmp_path, first)
    own = query.opened.own
    settings = {"bins": BINS, "changelog": True, "state": "own", "key": "key"}
    data = json.loads((own / "query.json").read_text())
    (own / "query.json").write_text(json.dumps(data | {"settings": data["settings"] | settings}))
    query.opened.keep_form(first.state_form(), "binary")
    some(2, query)

    def kinds():
        return set(map(type, read_state(tmp_path / "checkpoint").value))

    assert kinds() == {int}
    there = query.replace(Fields("second"), migrate=to_fields, back=from_fields, budget_bytes=1)
    seen = []
    while query.change(there)["state"] != "done":
        query.epoch()
        seen.append(kinds())
    assert kinds() == {turned}
    assert {int, turned} in seen, "in between some bins are turned"
    query.stop()


def test_parquet_has_each_row_as_json(tmp_path):
    run = TimedRun(tmp_path, Tally(), key="string")
    run.epoch([(0, b"ann", {"value": 2}), (0, b"bob", {"value": 5})])
    with state_at(tmp_path / "checkpoint") as state:
        assert write_parquet(state, tmp_path / "state.parquet") == 2
        (ann,) = [row for row in state.every_row() if is_of_key(row, "ann")]
        assert [row for row in state.every_row() if is_of_key(row, '"ann"')] == [ann]
    table = pq.read_table(tmp_path / "state.parquet")
    assert table.schema.metadata == {b"query": state.query.encode(), b"epoch": b"0"}
    found = {(row["key"], row["value"], row["field"]) for row in table.to_pylist()}
    assert found == {('"ann"', "2", None), ('"bob"', "5", None)}


def test_a_state_folder_that_is_gone_changes_nothing_and_a_file_that_is_gone_is_named(tmp_path):
    run = TimedRun(tmp_path, Tally())
    run.epoch([(0, b"ann", {"value": 2})])
    run.epoch([])
    shutil.rmtree(tmp_path / "state")
    assert impls.read_state(tmp_path / "checkpoint").value.tolist() == [2]
    sorted((tmp_path / "checkpoint" / "rescale" / "log").iterdir())[0].unlink()
    with pytest.raises(StateError, match=r"changelog file .* is missing"):
        values(run)
    with pytest.raises(UsageError, match=r"neither snapshots nor a changelog in .* name the log_dir"):
        read_state(tmp_path / "checkpoint", log_dir=str(tmp_path / "another"))


def test_of_a_chain_a_stage_is_to_be_named(tmp_path):
    for name in ("counts", "highest"):
        TimedRun(tmp_path / name, Tally())
        (tmp_path / name / "checkpoint").rename(tmp_path / f"chain-{name}")
    chain = tmp_path / "chain"
    chain.mkdir()
    for name in ("counts", "highest"):
        (tmp_path / f"chain-{name}").rename(chain / name)
    with pytest.raises(UsageError, match="checkpoint of a chain: name that of a stage, counts or highest in it"):
        read_state(chain)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"changelog": False}, "keeps no changelog: its state is in state_dir alone"),
        ({"changelog": False, "state": "shared"}, "in the store that all workers share"),
        ({"bins": BINS // 2}, "do not fit|belongs to another query|of another query"),
    ],
)
def test_a_checkpoint_without_state_of_its_own_gets_a_sentence(tmp_path, settings, sentence):
    run = TimedRun(tmp_path, Tally())
    for _ in range(15):
        run.epoch([(0, b"ann", {"value": 2})])
    path = tmp_path / "checkpoint" / "rescale" / "query.json"
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, "settings": data["settings"] | settings}))
    with pytest.raises((UsageError, StateError), match=sentence):
        values(run)


def test_where_there_is_nothing_yet(tmp_path):
    with pytest.raises(UsageError, match="There is no checkpoint of a query in"):
        read_state(tmp_path)
    run = TimedRun(tmp_path, Tally())
    with pytest.raises(UsageError, match=r"No epoch of the query .* has ended yet"):
        values(run)
    run.epoch([])
    with pytest.raises(UsageError, match="has the state at the ends of epochs 0 to 0"):
        values(run, epoch=3)
    (tmp_path / "checkpoint" / "rescale" / "form.json").write_text("{}")
    with pytest.raises(UsageError, match=r"form\.json is damaged"):
        values(run)
    (tmp_path / "checkpoint" / "rescale" / "form.json").unlink()
    with pytest.raises(UsageError, match="start the query once"):
        values(run)
