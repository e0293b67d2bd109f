"""Planted bugs of timers on the move, and of the watermark of a second stage: a run without moves answers otherwise."""

from pathlib import Path

import pytest
from auctions import FROM_SCRATCH, ends, random_events, rows
from staged import query_run
from timed import BINS, close_all, spread

from impls.protocol import eventtime
from impls.store.bins import copy_bin
from impls.store.state import BinState
from impls.worker import pull


@pytest.fixture(autouse=True)
def closed():
    yield
    close_all()


def moved(folder: Path, name: str) -> bool:
    """Returns whether a query whose bins move under it answers as the events say; False too when it fails."""
    events = random_events(11, 120)
    run = query_run(folder, name, mechanism="partial-pause")
    try:
        for at in range(0, 120, 6):
            if at % 24 == 6:
                run.move(spread(at, 4))
            run.epoch(rows(name, events[at : at + 6]))
        run.epoch(rows(name, ends(name)))
        run.settle()
    except Exception:
        return False
    want = sorted(map(str, ({k: a[k] for k in sorted(a)} for a in FROM_SCRATCH[name](events))))
    return sorted(map(str, ({k: a[k] for k in sorted(a)} for a in run.results()))) == want


@pytest.mark.parametrize("name", ["q4", "q5", "q6"])
def test_nothing_is_wrong_without_a_bug(tmp_path, name):
    assert moved(tmp_path, name)


def test_a_second_stage_that_does_not_wait_for_bins_on_the_move_is_seen(tmp_path, monkeypatch):
    observe = eventtime.EventClock.observe
    monkeypatch.setattr(eventtime.EventClock, "observe", lambda self, times, _: observe(self, times, []))
    assert not moved(tmp_path, "q5")


def test_timers_left_behind_by_their_bin_are_seen(tmp_path, monkeypatch):
    def copy(source, txn, bin_, leaves):
        size = copy_bin(source, txn, bin_, leaves)
        moved_state = BinState(txn, BINS)
        moved_state.set_earliest_timer(bin_, None)
        moved_state.write_sizes()
        return size

    monkeypatch.setattr(pull, "copy_bin", copy)
    assert not moved(tmp_path, "q4")
