"""Records that cannot be applied: a sentence names them, or they are set aside and counted; the state stays sound."""

import struct
from dataclasses import replace

import lmdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from impls.durability.files import Files
from impls.errors import CorruptStateError, OperatorError, StateError, UsageError
from impls.operators import DenseCount, EventTime, HashCount, KeyedProcess, StatefulMap
from impls.protocol.eventtime import MAX_TIME, NO_TIME, EventClock
from impls.protocol.jsontext import to_text
from impls.protocol.order import EpochOrder
from impls.protocol.plan import EpochPlan, WrittenPlan
from impls.protocol.report import Report
from impls.protocol.session import Ended, Marks, NewEpoch
from impls.realtime.blobs import Blob
from impls.realtime.worker import RealTimeWorker
from impls.worker import opening
from impls.worker.applying import Applying
from impls.worker.attempts import run_epoch
from impls.worker.query import QuerySpec, Task
from impls.worker.sinks import Nowhere

BINS = 2
TOPIC = 3 << 20  # a topic with the number 3


class Kept(Nowhere):
    """Payloads that were sent."""

    def __init__(self):
        self.sent = []

    def send(self, results, **_):
        self.sent += list(zip(results.keys, results.payloads, strict=True))


class Sums(StatefulMap):
    """The sum of a key's values, of which none may be negative."""

    columns = ("value",)

    def update(self, key, record, state):
        if record["value"] < 0:
            raise ValueError("a negative value")
        total = (state or 0) + record["value"]
        return total, total


class Latest(KeyedProcess):
    """Sends each event time, and sets a timer behind it."""

    event_time = EventTime("value", disorder=5)
    columns = ("value",)

    def record(self, record, one):
        one.set_timer(one.time + 1800)
        one.emit(one.time)

    def timer(self, one):
        one.emit(-one.time)


def table(rows):
    """Records of (key, value) at offsets 0, 1, 2... of partition 1 of the topic."""
    keys, values = zip(*rows, strict=True)
    whole = any(isinstance(key, int) for key in keys)
    n = len(rows)
    return pa.table({
        "bin": pa.array([0] * n, pa.int32()), "partition": pa.array([TOPIC | 1] * n, pa.int64()),
        "offset": pa.array(range(n), pa.int64()), "time": pa.array([None] * n, pa.int64()),
        "key": pa.array(keys, pa.int64() if whole else pa.binary()), "value": pa.array(values, pa.int64()),
    })  # fmt: skip


def order(epoch):
    return EpochOrder(WrittenPlan(epoch, 1, 1, EpochPlan(np.zeros(BINS, np.int32)), watermark=None), first=epoch == 0)


class Epochs:
    """A worker of micro-batches."""

    def __init__(self, spec):
        self.spec, self.epoch = spec, 0

    def run(self, records):
        run_epoch(Task(self.spec, order(0), 0), [])
        report, _ = run_epoch(Task(self.spec, order(1), 0), [records])
        return report


class Commits:
    """A worker of real time."""

    def __init__(self, spec):
        self.said = []
        self.worker = RealTimeWorker(replace(spec, repeats=True), 0, batch=0, say=self.said.append)

    def run(self, records):
        try:
            self.worker.hear(NewEpoch(order(0)))
            self.worker.hear(Marks(0, ((0, 1),), settled=True))
            self.worker.take([Blob(0, 1, 0, records)])
            for _ in range(40):
                if not self.worker.step():
                    break
        finally:
            self.worker.close()
        (ended,) = [message for message in self.said if isinstance(message, Ended)]
        return Report.from_json(ended.report)


@pytest.fixture(params=[Epochs, Commits])
def made(request, tmp_path):
    """made(operator, on_error) makes a worker; `made.out` has its results."""
    files = Files(str(tmp_path / "checkpoint"))
    files.make_folders(["log", "snapshots"])

    def make(operator, on_error="fail"):
        make.out = Kept()
        spec = QuerySpec("q", BINS, operator, make.out, str(tmp_path / "state"), files)
        return request.param(replace(spec, on_error=on_error, topics={3: "payments"}))

    return make


AT_1 = "topic payments, partition 1, offset 1"
TWICE = ValueError("a negative value")


class Raising(Sums):
    """Raises one object again and again."""

    def update(self, key, record, state):
        if record["value"] < 0:
            raise TWICE
        return super().update(key, record, state)


class NoJson(Sums):
    """A state, or a result, that is no JSON."""

    def __init__(self, what):
        self.what = what

    def update(self, key, record, state):
        total = (state or 0) + record["value"]
        if record["value"] >= 0:
            return total, total
        return (object(), 1) if self.what == "state" else (total, object())


class Ring(Sums):
    """Raises an exception that is its own cause."""

    def update(self, key, record, state):
        try:
            return super().update(key, record, state)
        except ValueError as error:
            raise error from error


class OwnData(Sums):
    """Reads an LMDB of its own, in which nothing has an empty name."""

    def __init__(self, folder):
        self.folder = str(folder / "own")

    def update(self, key, record, state):
        with lmdb.open(self.folder) as own, own.begin() as txn:
            txn.get(b"" if record["value"] < 0 else b"name")
        return super().update(key, record, state)


class LatestNoJson(Latest):
    def record(self, record, one):
        one.set_value(object() if record["value"] % 2 else record["value"])
        one.emit(one.time)

    def timer(self, one):
        raise AssertionError("no timer was set")


MANY = [(b"a", 1), (b"b", -1), (b"a", 4), (b"c", -9), (b"c", 2)]
CASES = {
    "null key": (Sums(), [(b"a", 1), (None, 2), (b"a", 4)], f"The record at {AT_1} has no key: leave", [1, 5]),
    "null number as key": (HashCount(), [(7, 0), (None, 0), (7, 0)], f"{AT_1} has no key", [1, 2]),
    "key beyond the operator's": (DenseCount(8), [(3, 0), (99, 0), (3, 0)], f"{AT_1} has the key 99, which", [1, 2]),
    "key below the operator's": (DenseCount(8), [(3, 0), (-1, 0), (3, 0)], f"{AT_1} has the key -1, which", [1, 2]),
    "null time": (Latest(), [(b"a", 1), (b"a", None)], f"{AT_1} has no event time in the column 'value'", [1]),
    "highest time": (Latest(), [(b"a", 1), (b"a", 2**63 - 1)], "which is not between -2^62 and 2^62", [1]),
    "lowest time": (Latest(), [(b"a", 1), (b"a", -(2**63))], f"{AT_1} has the event time -9223372036854775808", [1]),
    "exception": (Sums(), [(b"a", 1), (b"b", -1), (b"a", 4), (b"c", -9), (b"c", 2)], "a negative value", [1, 5, 2]),
}


def numbers(out):
    """The values of results, of counts and of JSON."""
    return [struct.unpack("<q", v)[0] if len(v) == 8 else int(v) for _, v in out.sent]


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_such_a_record_is_named_in_one_sentence_and_nothing_is_applied(made, case):
    operator, rows, sentence, _ = case
    with pytest.raises((OperatorError, ValueError)) as caught:
        made(operator).run(table(rows))
    words = " ".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert sentence in words
    assert AT_1 in words
    assert 'on_error="skip"' in words
    assert made.out.sent == []


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_it_is_set_aside_and_counted_and_the_others_are_applied(made, case):
    operator, rows, _, left = case
    report = made(operator, "skip").run(table(rows))
    assert report.refused == len(rows) - report.records
    assert set(numbers(made.out)) <= set(left)
    assert numbers(made.out)[-1] in left
    assert report.refused == sum(row in {(None, 2), (None, 0), (99, 0), (-1, 0)} or bad(row) for row in rows)


@pytest.mark.parametrize(("operator", "rows", "left"), [
    (Raising(), MANY, [1, 5, 2]),
    (Ring(), MANY, [1, 5, 2]),
    (NoJson("state"), MANY, [1, 5, 2]),
    (NoJson("result"), MANY, [1, 5, 2]),
    (LatestNoJson(), [(b"a", 2), (b"a", 3), (b"b", 5), (b"a", 4)], [2, 4]),
], ids=["one object again", "its own cause", "state", "result", "value"])  # fmt: skip
def test_what_a_record_leaves_behind_is_tried_with_it(made, operator, rows, left):
    report = made(operator, "skip").run(table(rows))
    assert report.refused == len(rows) - report.records > 0
    assert set(numbers(made.out)) <= set(left)
    assert numbers(made.out)[-1] in left


def test_a_record_of_another_file_with_the_same_offset_and_row_is_not_set_aside(made):
    rows = table([(b"a", 1), (b"a", -1), (b"a", 4)]).drop_columns(["offset"])
    for name, values in (("offset", [7, 7, 7]), ("rescale_file", [1, 2, 3]), ("rescale_row", [0, 0, 0])):
        rows = rows.append_column(name, pa.array(values, pa.int64()))
    report = made(Sums(), "skip").run(rows)
    assert (report.refused, numbers(made.out)[-1]) == (1, 5)


def wrapped(text):
    """What code raises that has caught an error of the state."""
    error = RuntimeError("The price cannot be read.")
    error.__context__ = CorruptStateError(text)
    return error


def grouped(text):
    """What code raises whose tasks fail together."""
    return ExceptionGroup("two tasks", [ValueError("one"), CorruptStateError(text)])


@pytest.mark.parametrize("error", [CorruptStateError, wrapped, grouped])
@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_damage_of_the_state_is_no_fault_of_a_record(made, error, on_error):
    class Damaged(Sums):
        def update(self, key, record, state):
            raise error("An entry is damaged.")

    with pytest.raises(StateError, match="An entry is damaged"):  # also where it comes back with each rebuild
        made(Damaged(), on_error).run(table([(b"a", 1)]))
    assert made.out.sent == []


def test_an_lmdb_of_the_operators_own_is_not_the_state(made, tmp_path):
    rows = table(MANY)
    for _ in range(2):
        with pytest.raises(OperatorError, match="BadValsizeError") as caught:
            made(OwnData(tmp_path)).run(rows)
        (note,) = caught.value.__notes__
        assert AT_1 in note
    assert (made(OwnData(tmp_path), "skip").run(rows).refused, numbers(made.out)[-1]) == (2, 2)


def test_a_query_that_fails_again_names_one_record(made):
    for _ in range(2):
        with pytest.raises(ValueError, match="a negative value") as caught:
            made(Raising()).run(table(MANY))
        (note,) = caught.value.__notes__
        assert AT_1 in note


@pytest.mark.parametrize("name", ["partition", "offset"])
def test_a_null_in_a_users_own_partition_or_offset_is_named_or_set_aside(made, name):
    rows = table([(b"a", 1), (b"a", 2), (b"a", 4)])
    values = rows.column(name).to_pylist()
    place, column = rows.column_names.index(name), pa.array([values[0], None, values[2]], pa.int64())
    rows = rows.set_column(place, name, column)
    with pytest.raises(OperatorError, match=f"The record at partition .*, offset .* has no {name}: leave"):
        made(Sums()).run(rows)
    assert made(Sums(), "skip").run(rows).refused == 1
    assert numbers(made.out)[-1] == 5


def bad(row):
    return row[1] is None or row[1] < 0 or row[1] > MAX_TIME


def test_an_operators_exception_is_never_taken_for_a_crash(tmp_path, monkeypatch):
    files = Files(str(tmp_path / "checkpoint"))
    files.make_folders(["log", "snapshots"])
    spec = QuerySpec("q", BINS, Sums(), Nowhere(), str(tmp_path / "state"), files)
    run_epoch(Task(spec, order(0), 0), [])
    rebuilt = []
    monkeypatch.setattr(opening, "_new", lambda *_, **more: rebuilt.append(more))
    for attempt in range(4):
        with pytest.raises(ValueError, match="a negative value"):
            run_epoch(Task(spec, order(1), 0, attempt), [table([(b"a", -1)])])
    assert not rebuilt


times = st.integers(NO_TIME, MAX_TIME)


@given(st.lists(st.tuples(st.integers(0, 3), times), min_size=1), st.integers(0, 1 << 60))
def test_a_plan_can_be_written_whatever_event_times_came(seen, disorder):
    clock = EventClock(EventTime("at", disorder=disorder), 4)
    clock.observe(seen, [])
    plan = WrittenPlan(1, 1, 1, EpochPlan(np.zeros(4, np.int32)), watermark=clock.watermark)
    to_text(plan.to_json())
    clock.observe([], [])


class InPlace(Sums):
    """Changes its state in place, also where it fails."""

    def update(self, key, record, state):
        state = state or []
        state.append(record["value"])
        if record["value"] < 0:
            raise ValueError("a negative value")
        return state, sum(state)


class LongNamed(Latest):
    def record(self, record, one):
        one.set_value(record["value"], "n" * 101)


@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_no_record_is_to_blame_for_the_name_of_a_variable(made, on_error):
    with pytest.raises(UsageError, match="is longer than 100 bytes"):
        made(LongNamed(), on_error).run(table([(b"a", 1), (b"b", 2)]))


class Touching(Latest):
    """Writes each kind of state before it fails."""

    def record(self, record, one):
        number = (one.value() or 0) + 1
        one.set_value(number)
        one.append(number)
        one.set_field(b"last", number)
        one.set_timer(one.time + number)
        if record["value"] % 2:
            raise ValueError("an odd value")
        assert [*range(1, number + 1)] == one.items()
        one.emit(number)

    def timer(self, one):
        one.emit(-one.time)


@pytest.mark.parametrize(("operator", "bad", "last"), [(Sums, -1, 300), (InPlace, -1, 300), (Touching, 1, 300)])
@pytest.mark.parametrize("keys", [1, 40])
def test_hundreds_of_such_records_cost_a_few_attempts(made, monkeypatch, operator, bad, last, keys):
    """Also where all are of one key, and where a function changes state before it fails."""
    attempts, plain = [], Applying.run
    monkeypatch.setattr(Applying, "run", lambda *args: attempts.append(args) or plain(*args))
    rows = [(b"%d" % (n % keys), 2 if operator is Touching else 1) for n in range(300)]
    mixed = [row for one in rows for row in (one, (one[0], bad))]
    report = made(operator(), "skip").run(table(mixed))
    assert (report.records, report.refused) == (300, 300)
    assert len(attempts) <= 5
    assert max(numbers(made.out)) == last // keys + (last % keys > 0)
