"""Results of aggregates as JSON: times in the session's zone, to the precision that the sink needs."""

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest

from impls.errors import UsageError
from impls.operators import Aggregate
from impls.operators.rowjson import json_rows, zone_of
from impls.store.environment import Store
from impls.store.state import BinState

MOMENT = dt.datetime(2026, 1, 1, 0, 0, 0, 123456, tzinfo=dt.UTC)


@pytest.mark.parametrize(("zone", "micros", "text"), [
    ("UTC", False, "2026-01-01T00:00:00.123Z"),
    ("UTC", True, "2026-01-01T00:00:00.123456Z"),
    ("+05:30", True, "2026-01-01T05:30:00.123456+05:30"),
    ("America/New_York", False, "2025-12-31T19:00:00.123-05:00"),
])  # fmt: skip
def test_an_aggregate_gives_times_in_the_sessions_zone(tmp_path, zone, micros, text):
    operator = Aggregate({"at": "timestamp"}, {"last": "max(at)"}, {"at": "timestamp"}, zone=zone, micros=micros)
    records = pa.table({
        "bin": pa.array([0], pa.int32()), "key": pa.array([b"k"]), "at": pa.array([MOMENT], pa.timestamp("us", "UTC")),
    })  # fmt: skip
    with Store.open(tmp_path / "state") as store, store.begin() as txn:
        (payload,) = operator.apply(records, BinState(txn, 1)).payloads
    assert payload == f'{{"at":"{text}","last":"{text}"}}'.encode()


@pytest.mark.parametrize(("name", "hours"), [
    ("Z", 0), ("UTC", 0), ("UT", 0), ("+05:30", 5.5), ("-8", -8), ("UTC+01:00", 1), ("GMT-2", -2), ("UTC+0130", 1.5),
    ("PST", -8), ("+18:00", 18),
])  # fmt: skip
def test_a_zone_is_a_region_an_offset_or_a_short_name(name, hours):
    assert MOMENT.astimezone(zone_of(name)).utcoffset() == dt.timedelta(hours=hours)


@pytest.mark.parametrize("name", ["Mars/Olympus", "", "../UTC", "+5:", "UTC+", "+99:00"])
def test_another_zone_is_one_sentence(name):
    with pytest.raises(UsageError, match=r"The session's time zone .* is unknown here"):
        zone_of(name)


def test_years_are_as_java_writes_them_beyond_pythons():
    days = np.array([-719_162, -719_163, -719_163 - 366, 2_932_896, 2_932_897], np.int32)
    rows = json_rows(pa.schema([("day", pa.date32())]), "UTC")(pa.table({"day": pa.array(days, pa.date32())}))
    years = [b"0001-01-01", b"0000-12-31", b"-0001-12-31", b"9999-12-31", b"+10000-01-01"]
    assert rows == [b'{"day":"%s"}' % year for year in years]


def test_a_type_without_a_form_is_refused():
    with pytest.raises(UsageError, match="The output column took has the type duration"):
        json_rows(pa.schema([("took", pa.duration("us"))]), "UTC")


def test_an_aggregate_that_was_pickled_before_it_had_a_zone_goes_on_in_utc(tmp_path):
    operator = Aggregate({"at": "timestamp"}, {"last": "max(at)"}, {"at": "timestamp"})
    before = Aggregate.__new__(Aggregate)
    vars(before).update({name: value for name, value in vars(operator).items() if name not in {"_zone", "_micros"}})
    row = pa.table({"at": pa.array([MOMENT], pa.timestamp("us", "UTC"))})
    assert before.payloads(row, [[row.column("at")]]) == operator.payloads(row, [[row.column("at")]])
