"""Epochs of a worker whose input, versions or files are not the usual ones."""

import pickle
import shutil

import numpy as np
import pyarrow as pa
import pytest
from durable import BINS, Workers
from memory import MemoryOutput

from impls.durability.frame import frame_name
from impls.operators import HashCount, KeyedProcess
from impls.operators.pipeline import Contents
from impls.protocol.eventtime import EpochClock, EventTime
from impls.protocol.order import EpochOrder
from impls.protocol.plan import EpochPlan, Pull, WrittenPlan
from impls.protocol.versions import Code, Version, Versions
from impls.store.environment import Store
from impls.store.tables import STATE, bin_range, iter_range
from impls.worker.attempts import run_epoch
from impls.worker.query import QuerySpec, Task


class Late(KeyedProcess):
    """Says its name 10 ms after a record, in processing time."""

    event_time = EventTime("at", clock=True)
    columns = ("at",)
    processing = True

    def record(self, record, context):
        context.set_value(1)
        context.set_timer(context.keyed.watermark + 10)

    def timer(self, context):
        context.emit(type(self).__name__)


class Later(Late):
    """The same by another name."""


def events(*rows):
    """Records of (bin, offset, key, event time)."""
    bins, offsets, keys, times = zip(*rows, strict=True) if rows else ((), (), (), ())
    columns = {"bin": pa.array(bins, pa.int32()), "partition": pa.array([0] * len(rows), pa.int64())}
    columns |= {"offset": pa.array(offsets, pa.int64()), "time": pa.array([0] * len(rows), pa.int64())}
    return pa.table({**columns, "key": pa.array(keys, pa.binary()), "at": pa.array(times, pa.int64())})


def run_timed(spec, epoch, table, required=None, codes=()):
    plan = EpochPlan(np.zeros(spec.bins, np.int32))
    clock = EpochClock(1_000_000 + 100 * epoch, 1_000_000 + 100 * (epoch - 1) if epoch else 0)
    versions = None if required is None else Versions(np.array(required, np.int32))
    written = WrittenPlan(epoch, 1, 1, plan, watermark=500 if epoch else None, clock=clock, versions=versions)
    return run_epoch(Task(spec, EpochOrder(written, 1, first=epoch == 0, codes=codes), 0), [table])[0]


@pytest.mark.parametrize("required", [None, [0, 0, 0, 0]])
def test_timers_of_processing_time_fire_without_records_under_versions_too(tmp_path, required):
    spec = QuerySpec("q", 4, Late(), MemoryOutput(str(tmp_path)), str(tmp_path / "state"))
    tables = [events((0, 0, b"a", 600)), events(), events()]
    assert [run_timed(spec, n, table, required).event_time.fired for n, table in enumerate(tables)] == [0, 1, 0]


def test_a_timer_runs_under_the_version_of_its_bin_whatever_bins_have_records(tmp_path, results_in):
    output = MemoryOutput(str(tmp_path))
    spec = QuerySpec("q", 4, Late(), output, str(tmp_path / "state"))
    codes = (Code(Version(1, 0, "later", "later"), pickle.dumps(Contents(Later()))),)
    for epoch, table in enumerate([events((0, 0, b"a", 600)), events((1, 1, b"b", 600)), events((1, 2, b"b", 600))]):
        run_timed(spec, epoch, table, [0, 1, 0, 0], codes)
    assert results_in(output) == [(b"a", b'"Late"'), (b"b", b'"Later"')]


@pytest.fixture
def results_in():
    from memory import RESULTS

    return lambda output: [(key, value) for _, _, _, key, value in RESULTS[output.name]]


def test_the_event_time_of_a_record_that_is_set_aside_does_not_count(tmp_path):
    spec = QuerySpec("q", 4, Late(), MemoryOutput(str(tmp_path)), str(tmp_path / "state"), on_error="skip")
    report = run_timed(spec, 0, events((0, 0, b"a", 1000), (1, 1, None, 1 << 50)))
    assert (report.refused, report.event_time.times) == (1, [[0, 1000]])


@pytest.mark.parametrize("target", [2, 3])
def test_damage_that_comes_with_a_pulled_bin_is_not_pulled_again_also_by_a_worker_that_begins(tmp_path, target):
    workers = Workers(tmp_path, HashCount(), keys=300)
    for _ in range(3):
        workers.epoch(records=3000)
    file = workers.environment(0) / "data.mdb"
    with Store.open(file.parent, create=False) as store, store.reading() as txn:
        items = [(bytes(name), bytes(value)) for name, value in iter_range(txn, *bin_range(STATE, 2))]
    raw = bytearray(file.read_bytes())
    for name, value in items:
        at = raw.find(name + value)
        while at >= 0:
            raw[at + len(name) + len(value) // 2] ^= 4
            at = raw.find(name + value, at + 1)
    file.write_bytes(raw)
    workers.number += 1
    keys, order = np.arange(300), workers.order([Pull(2, 0, target)])
    report = workers.run(order, target, keys, order.written.plan.routing[workers.bins_of(keys)])
    assert (report.moves.bins, report.moves.restored) == ([2], 1)


@pytest.mark.parametrize("change", ["column", "nullable"])
def test_records_that_waited_run_with_those_of_a_start_with_other_columns(tmp_path, change):
    workers = Workers(tmp_path, HashCount(), workers=1)
    workers.epochs(2)
    bin_ = int(workers.bins_of(np.array([7]))[0])
    first = [("bin", pa.int32()), *((name, pa.int64()) for name in ("partition", "offset", "time", "key"))]

    def run(held):
        workers.number += 1
        fields = [pa.field(name, kind, nullable=held or change != "nullable") for name, kind in first]
        row = {"bin": [bin_], "partition": [0], "offset": [10**9 + workers.number], "time": [0], "key": [7]}
        table = pa.table(row, schema=pa.schema(fields))
        if not held and change == "column":
            table = table.append_column("further", pa.array(["x"]))
        plan = EpochPlan(workers.location.copy(), hold=tuple(range(BINS)) if held else ())
        order = EpochOrder(WrittenPlan(workers.number, 1, 1, plan), 1, queued=() if held else ((bin_, 1),))
        return run_epoch(workers.task(order, 0), [table])[0]

    assert run(True).queues.lengths == ([bin_], [1])
    assert run(False).records == 2


def test_a_damaged_frame_of_the_epoch_under_way_is_written_anew(tmp_path):
    workers = Workers(tmp_path, HashCount())
    workers.epochs(4)
    workers.number += 1
    keys, order = np.arange(500), workers.order()
    owner = order.written.plan.routing[workers.bins_of(keys)]
    workers.run(order, 1, keys, owner)
    name = frame_name(workers.number, 1)
    whole = workers.files.read(name)
    workers.files.write(name, bytes(len(whole)))
    workers.lose(1)
    again = workers.run(order, 1, keys, owner, attempt=1)
    assert (again.recovered, again.repeated, again.records) == ("missing", False, int((owner == 1).sum()))
    assert workers.files.read(name) != bytes(len(whole))


def test_a_worker_rebuilt_to_the_end_of_its_epoch_says_where_it_is_and_that_it_was_rebuilt(tmp_path):
    workers = Workers(tmp_path, HashCount())
    keys = np.arange(500)

    def run(host, attempt=0):
        order = workers.order()
        mine = np.flatnonzero(workers.location[workers.bins_of(keys)] == 1)
        columns = {"bin": pa.array(workers.bins_of(keys[mine]), pa.int32()), "key": pa.array(keys[mine], pa.int64())}
        for name in ("partition", "time"):
            columns[name] = pa.array(np.zeros(len(mine), np.int64))
        columns["offset"] = pa.array(mine + workers.number * 1_000_000)
        return run_epoch(Task(workers.spec, order, 1, attempt, host), [pa.table(columns)])[0]

    workers.number += 1
    first = run("one")
    shutil.rmtree(workers.folder / "state" / "one")
    again = run("two", attempt=1)
    assert (first.host, again.host, again.repeated, again.recovered) == ("one", "two", True, "missing")
    assert again.records == first.records > 0
