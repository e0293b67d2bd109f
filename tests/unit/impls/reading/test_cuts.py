"""Cuts of a query that goes on: what they keep, how many there may be, and how Spark's tasks read them."""

import gc

import pyarrow as pa
import pytest
from timed import BINS, TimedRun

from impls.driver.control import ControlServer, Lent
from impls.errors import StateError, UsageError
from impls.operators import HashCount
from impls.operators.timed import KeyedProcess
from impls.protocol.eventtime import EventTime
from impls.reading.cuts import Cut, _Pieces
from impls.reading.cuts import cut_of as cut_elsewhere
from impls.reading.points import PointReader
from impls.reading.state import read_state, state_at
from impls.reading.texts import json_text


class Adding(KeyedProcess):
    event_time = EventTime("at")
    columns = ("at", "n")

    def record(self, record, one):
        one.set_value((one.value() or 0) + record["n"])


@pytest.fixture
def run(tmp_path):
    query = TimedRun(tmp_path, Adding(), replay_epochs=2)
    yield query
    query.checkpoint.close()


def go_on(run, epochs):
    for _ in range(epochs):
        run.epoch([(0, f"key {key}".encode(), {"at": 1, "n": key}) for key in range(20)])


def cut_of(run):
    return Cut.of(run.driver.keeper, run.checkpoint.folder)


def files_of(run):
    return {str(path.relative_to(run.checkpoint.own)) for path in run.checkpoint.own.glob("*/*") if path.is_file()}


def test_the_files_of_a_cut_stay_until_it_is_closed_and_no_longer(run):
    go_on(run, 10)
    at_rest = len(files_of(run))
    first, second = cut_of(run), None
    frame = first.to_pandas()
    for _ in range(10):
        go_on(run, 10)
        run.move([(bin_ + run.number) % 3 for bin_ in range(BINS)])
        assert first.to_pandas().equals(frame)
        second = second or cut_of(run)
        assert len(files_of(run)) <= 3 * at_rest, "as long as a cut is open it keeps what it has kept at first"
    before = second.to_pandas()
    first.close()
    first.close()
    go_on(run, 3)
    assert second.to_pandas().equals(before), "of another cut's end it knows nothing"
    second.close()
    go_on(run, 8)
    assert len(files_of(run)) <= 1.5 * at_rest
    with pytest.raises(UsageError, match=f"The cut of epoch {first.epoch} is closed"):
        first.to_pandas()
    with pytest.raises(UsageError, match="is closed"):
        first.to_spark(None)


def test_what_cannot_be_cut_or_is_gone_is_said(run):
    with pytest.raises(UsageError, match="No epoch of the query has ended yet"):
        cut_of(run)
    go_on(run, 3)
    cuts = [cut_of(run) for _ in range(16)]
    with pytest.raises(UsageError, match=r"16 cuts are open, of the epochs 2, 2.*: close one before the next is made"):
        cut_of(run)
    cuts[0].close()
    cut_of(run).close()
    cuts[0].close()
    assert len(run.driver.keeper._pins.held()) == 15, "a cut that is closed twice closes no other"
    with pytest.raises(UsageError, match="at least 1 partition, not 0"):
        cuts[1].to_spark(None, partitions=0)
    run.restart()
    go_on(run, 30)
    with pytest.raises(StateError, match=r"The cut of epoch 2 cannot be read; .* before it. The .* file .* is missing"):
        cuts[1].to_pandas()


@pytest.mark.parametrize("pieces", [1, 3, BINS])
def test_tasks_read_the_pieces_of_a_cut(run, pieces):
    go_on(run, 7)
    run.move([bin_ % 3 for bin_ in range(BINS)])
    with cut_of(run) as cut:
        go_on(run, 5)
        read = _Pieces(cut._stored, pieces, None)
        batches = [pa.record_batch({"id": [number]}) for number in range(pieces)]
        rows = [row for batch in batches for piece in read(iter([batch])) for row in piece.to_pylist()]
        whole = cut.to_pandas()
    assert len(rows) == 20
    found = {(row["bin"], row["key"], row["kind"], row["value"]) for row in rows}
    assert found == {(r.bin, json_text(r.key), r.kind, json_text(r.value)) for r in whole.itertuples()}


def test_another_process_keeps_the_files_that_it_reads(run):
    """`read_state` asks the query that runs, whose files would be gone before it has read them."""
    go_on(run, 3)
    taken_back = []

    def lend(_request):
        pin, release = run.driver.keeper.pin()
        return Lent(pin.to_json(), lambda: (taken_back.append(1), release()))

    with ControlServer(run.checkpoint.own, lend), state_at(run.checkpoint.folder) as state:
        go_on(run, 30)
        assert (state.epoch, state.queued) == (2, 0)
        assert [row.value for row in state.every_row()].count(3) == 1
        assert not taken_back
    assert taken_back == [1]
    assert read_state(run.checkpoint.folder).attrs["epoch"] == 32
    with ControlServer(run.checkpoint.own, lend), cut_elsewhere(run.checkpoint.folder) as cut:
        go_on(run, 30)
        assert (cut.epoch, cut.to_pandas().value.tolist().count(33 * 3)) == (32, 1)
        assert taken_back == [1]
        cut.close()
    with pytest.raises(UsageError, match=r"No running query answers on the checkpoint .*: impls.read_state reads it"):
        cut_elsewhere(run.checkpoint.folder)
    assert taken_back == [1, 1]


def test_a_cut_that_nobody_has_any_more_keeps_nothing(run):
    go_on(run, 3)
    pins = run.driver.keeper._pins
    for _ in range(20):
        cut_of(run).to_pandas()
    assert not pins.held()
    cut = cut_of(run)
    cycle = [cut]
    cycle.append(cycle)
    del cut, cycle
    gc.collect()
    assert not pins.held()


def test_records_that_wait_are_counted_and_not_in_a_cut(tmp_path):
    run, queued = TimedRun(tmp_path, HashCount(), "partial-pause", key="long"), []
    for number in range(4):
        if number == 1:
            run.move([1 - bin_ // (BINS // 2) for bin_ in range(BINS)])
        run.epoch([(0, key, {}) for key in range(40)])
        with cut_of(run) as cut:
            queued.append(cut.queued)
            assert cut.to_pandas().value.sum() + cut.queued == 40 * (number + 1)
        assert read_state(run.checkpoint.folder).attrs["queued"] == queued[-1]
    assert 0 == queued[0] == queued[-1] < max(queued)
    run.checkpoint.close()


def test_a_cut_whose_log_dir_is_not_named_is_refused_when_it_is_made(tmp_path):
    run = TimedRun(tmp_path, Adding(), log_dir=str(tmp_path / "durable"), replay_epochs=2)
    go_on(run, 3)

    def lend(_request):
        pin, release = run.driver.keeper.pin()
        return Lent(pin.to_json(), release)

    folder, elsewhere = run.checkpoint.folder, "neither snapshots nor a changelog in .*: name the log_dir"
    with ControlServer(run.checkpoint.own, lend):
        for reads in (cut_elsewhere, read_state):
            with pytest.raises(UsageError, match=elsewhere):
                reads(folder)
        with cut_elsewhere(folder, log_dir=str(tmp_path / "durable")) as cut:
            assert len(cut.to_pandas()) == 20
    assert not run.driver.keeper._pins.held()
    run.checkpoint.close()


def test_a_query_without_a_changelog_has_no_cut(run):
    go_on(run, 1)
    reader = PointReader(run.driver, run.checkpoint, run.spec, in_sql=None)
    assert reader.cut().epoch == 0
    reader._settings = {**reader._settings, "changelog": False}
    for refuses in (reader.cut, reader.lend):
        with pytest.raises(UsageError, match="keeps no changelog: its state is in state_dir alone"):
            refuses()
