"""The report of an epoch from those of its commits, and event times that count when nothing before them comes."""

from impls.protocol.report import EventTimes, MovesReport, Queues, Report, Written
from impls.worker.reports import (
    add_times,
    count_times,
    forget_times,
    keep_report,
    kept_report,
    merged_report,
    settle_times,
    with_times,
)
from impls.worker.state import WorkerState


def report(**parts):
    return Report(1, **parts)


def test_counts_and_times_add_up_and_sizes_and_queues_are_the_last_ones():
    first = report(records=3, results=2, commits=1, rates=([1, 2], [3, 4]), sizes=([1, 2], [10, 20]), ms={"apply": 1.0})
    second = report(
        records=1, results=1, commits=1, rates=([2, 5], [1, 1]), sizes=([2], [25]), ms={"apply": 2.0, "log": 1.0}
    )
    second.queues = Queues(([7], [2]), 99)
    both = merged_report(first, second)
    assert (both.records, both.results, both.commits) == (4, 3, 2)
    assert dict(zip(*both.rates, strict=True)) == {1: 3, 2: 5, 5: 1}
    assert dict(zip(*both.sizes, strict=True)) == {1: 10, 2: 25}
    assert both.ms == {"apply": 3.0, "log": 1.0}
    assert both.queues == second.queues


def test_what_is_merged_leaves_the_parts_as_they_were():
    first, second = report(ms={"apply": 1.0}, moves=MovesReport([1], [2], 3)), report(ms={"apply": 1.0})
    merged_report(first, second)
    assert first.ms == {"apply": 1.0}
    assert first.moves.bins == [1]


def test_changed_bins_moves_and_times_are_those_of_both():
    first = report(
        changelog=Written([3, 1], 10), moves=MovesReport([1], [2], 3), event_time=EventTimes([[0, 5]], [], 1, 2)
    )
    second = report(
        changelog=Written([2, 3], 5), moves=MovesReport([4], [1], 2), event_time=EventTimes([[0, 4], [1, 9]], [], 1, 1)
    )
    both = merged_report(first, second)
    assert both.changelog == Written([1, 2, 3], 15)
    assert (both.moves.bins, both.moves.entries, both.moves.bytes) == ([1, 4], [2, 1], 5)
    event = both.event_time
    assert (event.times, event.late, event.fired) == ([[0, 5], [1, 9]], 2, 3)


def test_what_must_outlive_the_task_comes_back_and_nothing_is_nothing():
    pulls, times = MovesReport([1], [2], 3), EventTimes([[0, 5]])
    before = WorkerState(3, records=8, results=7)
    state = keep_report(before, report(records=8, results=7, moves=pulls), report(records=1, event_time=times))
    back = kept_report(state, 1)
    assert (back.moves, back.event_time, back.records, back.results) == (pulls, times, 9, 7)
    assert keep_report(WorkerState(3), report(), report()) == WorkerState(3)
    assert kept_report(WorkerState(3), 4) == Report(4)


def test_a_commit_that_adds_nothing_leaves_the_text_of_the_report_as_it_is():
    state = keep_report(WorkerState(3), report(), report(records=1, event_time=EventTimes([[0, 5]])))
    after = keep_report(state, kept_report(state, 1), report(records=4))
    assert after.report is state.report
    assert kept_report(after, 1).records == 5


def test_records_count_in_the_epoch_behind_the_one_that_routed_them():
    state = add_times(WorkerState(4), [[0, 20], [2, 5]], [])
    state = add_times(state, [[0, 30]], [[0, 50]])
    assert (state.times, state.ahead) == ([[0, 30], [2, 5]], [[0, 50]])
    after = count_times(state)
    assert (after.counted, after.times, after.ahead) == ([[0, 30], [2, 5]], [[0, 50]], [])


def test_what_comes_again_counts_no_more_and_what_a_batch_has_brought_that_ended_counts_at_once():
    state = WorkerState(4, times=[[0, 30]], ahead=[[0, 50], [1, 7]], counted=[[0, 9]])
    forgotten = forget_times(state)
    assert (forgotten.counted, forgotten.times, forgotten.ahead) == ([], [], [])
    after, times = settle_times(state)
    assert (after.times, after.ahead, after.counted, times) == ([], [], [[0, 9]], [[0, 50], [1, 7]])
    assert with_times(report(event_time=EventTimes([[0, 60]])), times).event_time.times == [[0, 60], [1, 7]]


def test_a_workers_state_comes_back_as_it_was():
    state = WorkerState(4, commits=2, batch=1, since=3, times=[[0, 30]], counted=[[1, 2]])
    assert WorkerState(**state.to_json()) == state
    assert "ahead" not in state.to_json()
    assert state.first_of(4) == WorkerState(4).number < state.number
