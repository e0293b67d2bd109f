"""Each record gets exactly one tag, and it follows from the record's own times."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.measure.cells import Cells
from harness.measure.migrations import Migration
from harness.measure.windows import TAGS, overlaps, tag_records, timeline
from impls.worker.cells import INTERVAL_US, make_cells

START_US = 1_767_225_600_000_000
SECOND_US = 1_000_000
TIMES = st.integers(0, 60 * SECOND_US).map(lambda n: START_US + n)


def cells_of(scheduled, done, moved=None):
    """Cells with a worker's report for each record, so that each is a row of its own."""
    parts = []
    for number, (due, at) in enumerate(zip(scheduled, done, strict=True)):
        flag = np.array([bool(moved[number]) if moved else False])
        parts.append(make_cells(np.array([due]), int(at), flag)[0])
    every = np.concatenate(parts)
    return Cells(
        epoch=np.arange(len(every)),
        done_us=np.array(done, np.int64),
        interval=every["interval"].astype(np.int64),
        latency_us=every["latency_us"].astype(np.int64),
        count=every["count"].astype(np.int64),
        moved=every["moved"].astype(bool),
    )


@st.composite
def runs(draw):
    due = draw(st.lists(TIMES, min_size=1, max_size=40))
    done = [at + draw(st.integers(0, 5 * SECOND_US)) for at in due]
    migrations = []
    for number in range(draw(st.integers(0, 3))):
        begin = draw(TIMES)
        end = draw(st.one_of(st.none(), st.integers(0, 10 * SECOND_US).map(lambda n, b=begin: b + n)))
        migrations.append(Migration(str(number), "", begin, end, ()))
    return cells_of(due, done), sorted(migrations, key=lambda m: m.begin_us), draw(st.one_of(st.none(), TIMES))


@settings(deadline=None)
@given(run=runs())
def test_every_record_has_one_tag_and_the_right_one(run):
    cells, migrations, warm_us = run
    tags = tag_records(cells, migrations, warm_us)
    assert len(tags) == len(cells)
    first = min((m.begin_us for m in migrations), default=None)
    for due, done, tag in zip(cells.scheduled_us.tolist(), cells.done_us.tolist(), tags.tolist(), strict=True):
        met = any(due <= (m.end_us if m.end_us is not None else done) and done >= m.begin_us for m in migrations)
        if met:
            assert TAGS[tag] == "migrating"
        elif first is not None and due > first:
            assert TAGS[tag] == "after"
        else:
            assert TAGS[tag] == ("steady" if warm_us is not None and due >= warm_us else "warmup")


@settings(deadline=None)
@given(run=runs())
def test_scheduled_time_is_exact_to_a_thousandth_of_the_latency(run):
    cells, _, _ = run
    error = (cells.done_us - cells.scheduled_us) - cells.latency_us
    assert (cells.scheduled_us // INTERVAL_US == cells.interval).all()
    assert (error >= 0).all()
    assert (error <= cells.latency_us / 1000).all()


@settings(deadline=None)
@given(run=runs())
def test_the_timeline_has_every_record_once(run):
    cells, migrations, warm_us = run
    tags = tag_records(cells, migrations, warm_us)
    line = timeline(cells, tags)
    assert line.records.sum() == cells.records
    assert (np.diff(line.begin_us) >= INTERVAL_US).all()
    assert (line.p50 <= line.p99).all()
    assert (line.p99 <= line.max).all()
    migrating = {int(i) for m in migrations for i in cells.interval[overlaps(cells, m)]}
    shown = line.begin_us[line.tag == TAGS.index("migrating")] // INTERVAL_US
    assert set(shown.tolist()) == migrating
