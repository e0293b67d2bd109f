"""How well a query was scaled, from hand-made lines."""

import pytest

from harness.measure.scores import Changed, Needed, oscillations, rescales_of, right_after, steps_of, worker_seconds

START_US = 1_000_000_000


def epoch(end_s, workers, migrating=False):
    end_us = START_US + int(end_s * 1e6)
    return {"begin_us": end_us - 500_000, "end_us": end_us, "workers": workers, "migrating": migrating}


def rescale(before, after, offered):
    return {"kind": "autoscale", "workers": before, "wanted": after, "numbers": {"offered_rate": offered}}


def test_worker_seconds_are_of_the_time_between_two_epochs_ends():
    epochs = [epoch(1, 1), epoch(2, 1), epoch(6, 3), epoch(8, 2), epoch(20, 9)]
    assert worker_seconds(epochs, START_US, 0, 8) == pytest.approx(1 + 1 + 4 * 3 + 2 * 2)
    assert worker_seconds(epochs, START_US, 1.5, 7) == pytest.approx(0.5 + 4 * 3 + 2)


def test_a_number_of_workers_counts_from_the_first_epoch_without_a_migration():
    epochs = [
        epoch(1, 1),
        epoch(2, 3, migrating=True),
        epoch(3, 3),
        epoch(4, 3),
        epoch(5, 3, migrating=True),
        epoch(6, 2),
    ]
    assert steps_of(epochs, START_US) == [Changed(0.5, 1), Changed(2.5, 3), Changed(5.5, 2)]


def test_an_oscillation_undoes_a_rescale_under_the_same_load():
    assert oscillations([]) == 0
    assert oscillations([rescale(1, 4, 500), rescale(4, 1, 100)]) == 0, "the load has fallen"
    assert oscillations([rescale(1, 4, 500), rescale(4, 3, 480), rescale(3, 4, 500)]) == 2
    assert oscillations([rescale(1, 3, 500), rescale(3, 4, 500)]) == 0
    late = rescale(1, 4, 500)
    late["numbers"]["backlog"] = 1000.0
    assert oscillations([late, rescale(4, 3, 500)]) == 0, "the backlog is gone"


def test_a_decision_that_changes_nothing_is_no_rescale():
    events = [{"kind": "command"}, {**rescale(1, 2, 5), "wanted": None}, {"kind": "autoscale", "error": "?"}]
    assert rescales_of(events) == []
    assert len(rescales_of([*events, rescale(1, 2, 5)])) == 1


@pytest.mark.parametrize(
    ("rate", "right", "wrong"), [(350, (4,), (3, 5)), (400, (4, 5), (3, 6)), (430, (4, 5), (3, 6)), (2000, (8,), (7,))]
)
def test_the_right_number_is_that_of_the_rate_within_a_tolerance(rate, right, wrong):
    needed = Needed(lambda _: rate, 100.0, 1, 8)
    assert [needed.is_right(n, 0) for n in (*right, *wrong)] == [True] * len(right) + [False] * len(wrong)


def test_a_load_that_needs_less_than_the_fewest_workers_has_those():
    needed = Needed(lambda _: 10, 100.0, 2, 8)
    assert needed.at(0) == 2
    assert needed.is_right(2, 0)
    assert not needed.is_right(3, 0)


def test_the_time_to_the_right_number_ends_where_it_stays_right():
    needed = Needed(lambda at: 80 if at < 20 else 400, 100.0, 1, 8)
    steps = [Changed(0, 1), Changed(25, 4), Changed(30, 7), Changed(33, 5)]
    assert right_after(steps, needed, 20, 60) == 13
    assert right_after(steps[:2], needed, 20, 60) == 5
    assert right_after(steps[:1], needed, 20, 60) is None
    assert right_after([Changed(0, 4)], needed, 20, 60) == 0
