"""A load waits for its commands, for records that cross each migration, and for steady epochs behind the last one."""

import pytest
from synthetic import BINS, write_run

from harness.files import read_lines
from harness.measure.cells import read_epochs
from harness.measure.migrations import outstanding

WARM_US = 2_000


def epoch(number, *, begin_us, ms=100, records=100, moved=0, queued=0):
    return {
        "epoch": number, "begin_us": begin_us, "end_us": begin_us + ms * 1_000, "records": records, "queued": queued,
        "moved_bins": moved, "moved_bytes": moved * 8, "longest_pull_ms": 0.0, "ms": {"total": ms},
    }  # fmt: skip


def story(moving=None, behind=(), *, ended=True, before=6):
    """Returns events and epochs of a run with one migration, of one epoch, and the epochs behind it."""
    calm = [epoch(number, begin_us=WARM_US + number * 100_000) for number in range(before)]
    at = WARM_US + before * 100_000
    events = [{"kind": "command", "id": "m", "label": "back", "at_us": at}]
    if moving is None:
        return events, calm
    lines = [*calm, epoch(before, begin_us=at, **moving)]
    events.append({"kind": "migration_begin", "id": "m", "at_us": at, "epoch": before, "bins": moving["moved"]})
    if ended:
        end_us = lines[-1]["end_us"]
        events.append({"kind": "migration_end", "id": "m", "at_us": end_us, "epoch": before, "superseded": False})
    for later in behind:
        lines.append(epoch(lines[-1]["epoch"] + 1, begin_us=lines[-1]["end_us"], **later))
    return events, lines


def told(*given, expected=1, **named):
    return outstanding(*story(*given, **named), expected=expected, bins=16, warm_us=WARM_US)


MOVING = {"ms": 900, "moved": 4}


@pytest.mark.parametrize(
    ("moving", "behind", "said"),
    [
        (None, (), "the migration 'back' had not ended"),
        (MOVING, (), "no record had crossed the migration 'back'"),
        (MOVING, [{"records": 39}], "no record had crossed the migration 'back'"),
        (MOVING, [{"records": 40}], ""),
        (MOVING, [{"ms": 500}], "steady state was not back"),
        (MOVING, [{"ms": 500}, {"ms": 500}, {}, {}], ""),
        (MOVING, [{"queued": 3}], "steady state was not back"),
        ({"moved": 0}, [{"records": 1}], ""),  # it moved no bin, so that no record can cross it
    ],
)
def test_what_a_load_waits_for(moving, behind, said):
    assert told(moving, behind) == said


def test_a_migration_under_way_or_not_yet_commanded_is_waited_for():
    assert told(MOVING, [{}], ended=False) == "the migration 'back' had not ended"
    assert told(MOVING, [{}] * 3, expected=2) == "1 of 2 migrations were commanded"
    assert told(None, expected=0) == ""


def test_without_epochs_before_the_command_any_epoch_behind_it_is_steady():
    assert told(MOVING, [{"ms": 5_000}], before=0) == ""
    assert outstanding(*story(MOVING, [{"ms": 500}]), expected=1, bins=16, warm_us=10**9) == ""


def test_a_run_that_was_crossed_waits_for_nothing_and_the_same_cut_short_does(tmp_path):
    write_run(tmp_path, mechanism="megaphone-batched", seconds=12, rate=200, summarise=False)
    events, epochs = read_lines(tmp_path / "events.jsonl"), read_epochs(tmp_path / "epochs.jsonl")
    assert outstanding(events, epochs, expected=2, bins=BINS) == ""
    last = [event["epoch"] for event in events if event["kind"] == "migration_end"][-1]
    cut = [line for line in epochs if line["epoch"] <= last]
    assert "no record had crossed" in outstanding(events, cut, expected=2, bins=BINS)
