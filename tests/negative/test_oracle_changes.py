"""The oracle of changes passes what is right and rejects a record under both codes, under none, or the wrong one."""

from dataclasses import replace

import numpy as np
import pytest
import relabelled
from relabelled import BINS, CODES, SWITCH, bin_of

from harness.oracle.changes.columns import VersionEffect
from harness.oracle.columns import OracleError


def only(judged, kind, why):
    """The history is rejected, by this class, with these words."""
    totals, examples = judged.found.totals, judged.found.examples
    assert totals[kind] > 0, totals
    assert any(why in one["why"] for found in examples.values() for one in found.values()), examples


@pytest.mark.parametrize("real_time", [False, True])
@pytest.mark.parametrize("change", CODES)
@pytest.mark.parametrize("seed", range(3))
def test_a_right_history_has_no_finding(seed, change, real_time):
    history = relabelled.make(seed, change)
    judged = history.judged(real_time=real_time)
    assert (judged.found.totals, judged.found.examples) == (dict.fromkeys(judged.found.totals, 0), {})
    assert all(judged.found.crossed[id_] > 0 for id_ in (*history.plans.ids, "one"))
    assert all(len(bins) == BINS for bins in judged.boundaries[len(history.plans.ids)].values())


def test_boundaries_are_the_first_offsets_under_a_version():
    history = relabelled.make(4)
    begins = {
        (epoch, part): begin for epoch, part, begin, _ in history.ranges
    }  # bins from 3 on go over in epoch 4, those before in epoch 5
    for part, bins in history.judged().boundaries[1].items():
        for bin_, offset in bins.items():
            assert offset >= begins[SWITCH + (bin_ < 3), part]
            assert bin_of(history.inputs[part][offset]) == bin_


@pytest.mark.parametrize("real_time", [False, True])
def test_a_record_under_both_codes_is_doubled(real_time):
    history = relabelled.make(1)
    before = next(line for line in history.lists if line[3] == SWITCH - 1)
    again = next(line for line in history.lists if line[3] > SWITCH + 1 and line[1] == before[1])
    part, offset, _ = before[6][0]
    again[6] = [*again[6], (part, offset, 2)]
    only(history.judged(real_time=real_time), "doubled", "a second result lists the record")


@pytest.mark.parametrize("real_time", [False, True])
@pytest.mark.parametrize("change", ["function", "filter"])
def test_a_record_under_no_code_is_lost(change, real_time):
    history = relabelled.make(2, change)
    line = next(line for line in history.lists if line[3] == SWITCH + 2 and any(o % 2 == 0 for _, o, _ in line[6]))
    line[6] = [entry for entry in line[6] if entry[1] % 2]
    only(history.judged(real_time=real_time), "lost", "its version keeps it")


@pytest.mark.parametrize("real_time", [False, True])
def test_a_record_that_a_filter_leaves_out_before_it_holds_is_lost(real_time):
    """Its next record in the partition is counted although the filter would leave it out."""
    history = relabelled.make(3, "filter")
    by_bin = {}
    for line in history.lists:
        if line[3] < SWITCH:
            by_bin.setdefault(int(bin_of(line[1])), []).extend((entry, line) for entry in line[6] if entry[1] % 2)
    odd = sorted(by_bin[BINS - 1], key=lambda one: one[0])
    entry, line = odd[0]
    line[6] = [one for one in line[6] if one != entry]
    only(history.judged(real_time=real_time), "lost", "no result lists the record")


def test_a_record_that_passes_the_filter_is_wrong():
    history = relabelled.make(3, "filter")
    found = history.with_codes([VersionEffect(sieve=True), VersionEffect(sieve=True)]).judged()
    only(found, "wrong", "another code than that of its version")


@pytest.mark.parametrize("change", ["function", "shape"])
def test_the_old_code_behind_the_boundary_is_wrong(change):
    """One result of an epoch behind the switch is as the old code makes it."""
    history = relabelled.make(5, change)
    line = next(line for line in history.lists if line[3] == SWITCH + 2)
    line[5] = (1, *line[5][1:])
    line[6] = [(part, offset, 1) for part, offset, _ in line[6]]
    only(history.judged(), "wrong", "another code than that of its version")


def test_two_boundaries_in_a_bin_are_wrong_where_no_plan_says_which_version_ran():
    """As in real time where a query was started anew with other code."""
    history = relabelled.make(5)
    blind = replace(history, plans=replace(history.plans, required={}))
    assert blind.judged(real_time=True).found.clean
    line = next(line for line in blind.lists if line[3] == SWITCH + 2)
    line[6] = [(part, offset, 1) for part, offset, _ in line[6]]
    only(blind.judged(real_time=True), "wrong", "an earlier one than the record before it")


def test_versions_of_a_bin_that_go_back_are_wrong():
    history = relabelled.make(6)
    history.plans.required[SWITCH + 2][:] = 0
    for line in history.lists:
        if line[3] == SWITCH + 2:
            line[6] = [(part, offset, 1) for part, offset, _ in line[6]]
    only(history.judged(), "wrong", "an earlier one than the record before it")


def test_state_that_is_lost_with_the_change_is_lost():
    history = relabelled.make(7, "shape")
    line = next(line for line in history.lists if line[3] == SWITCH + 1 and line[5][1] > len(line[6]))
    line[5] = (2, len(line[6]), line[5][2])
    only(history.judged(), "lost", "the state lacks records")


def test_state_that_counts_a_record_twice_is_wrong():
    history = relabelled.make(7)
    line = history.lists[-1]
    line[5] = (1, line[5][1] + 1, 0)
    only(history.judged(), "wrong", "records that no result has listed")


def test_state_whose_shape_was_turned_twice_is_wrong():
    history = relabelled.make(8, "shape")
    line = history.lists[-1]
    line[5] = (2, line[5][1], line[5][2] - 1)
    only(history.judged(), "wrong", "since its shape changed")


def _queued(history, bin_, *, release):
    """What epochs from 3 on have brought to a bin is listed by the one that has released its queue."""
    for line in history.lists:
        if SWITCH - 1 <= line[3] <= release:
            line[4] += 100 * line[3]
            if bin_of(line[1]) == bin_:
                line[3] = release
    history.lists.sort(key=lambda line: (line[3], line[2], line[4]))
    return replace(history, waits=[(epoch, bin_) for epoch in range(SWITCH - 1, release)])


def test_a_queued_record_has_the_version_of_the_epoch_that_brought_it():
    """Bin 0 goes over in epoch 5; what epoch 3 has brought and epoch 4 released has run under the old version."""
    right = _queued(relabelled.make(9), 0, release=SWITCH)
    assert right.judged().found.totals["wrong"] == 0
    wrong = _queued(relabelled.make(9), 0, release=SWITCH + 1)
    only(wrong.judged(), "wrong", "changed while the record was queued")


def test_an_epoch_that_lists_what_it_did_not_bring_is_wrong():
    history = _queued(relabelled.make(9), 0, release=SWITCH)
    only(replace(history, waits=[]).judged(), "wrong", "another epoch than the one that brought it")


def test_results_of_another_number_partition_or_key_are_found():
    history = relabelled.make(10)
    repeat = [*history.lists[-1][:5], (1, 999, 0), history.lists[-1][6]]
    only(replace(history, lists=[*history.lists, repeat]).judged(), "wrong", "differs from what it repeats")
    assert replace(history, lists=[*history.lists, history.lists[-1]]).judged().found.repeats == 1
    history.lists[0][0] = (history.lists[0][0] + 1) % relabelled.OUTPUTS
    only(history.judged(), "wrong", "partition of another bin")
    history = relabelled.make(10)
    part, offset, _ = history.lists[0][6][0]
    history.lists[0][6] = [(part, offset, 1), (part, 10_000, 1)]
    only(history.judged(), "wrong", "lists a record that is not the key's")


def test_results_of_another_form_cannot_be_checked():
    history = relabelled.make(11)
    results = history._results()
    results.value[3] = b"count"
    with pytest.raises(OracleError, match="not of the form"):
        relabelled.check(
            relabelled.Records(*(np.empty(0, np.int64),) * 4), results, history.plans, bin_of=bin_of, partitions=3
        )


def test_what_a_worker_does_between_two_epochs_runs_under_the_earlier_one():
    """Its results have the number of the later epoch; two epochs behind is too late."""
    history = relabelled.make(12)
    late = replace(history, plans=replace(history.plans, real_time=True))
    for line in late.lists:
        if line[3] == SWITCH and bin_of(line[1]) >= 3:
            line[6] = [(part, offset, 1) for part, offset, _ in line[6]]
    assert late.judged(real_time=True).found.clean
    assert not replace(late, plans=replace(late.plans, real_time=False)).judged(real_time=True).found.clean
    for line in late.lists:
        if line[3] == SWITCH + 1 and bin_of(line[1]) >= 3:
            line[6] = [(part, offset, 1) for part, offset, _ in line[6]]
    only(late.judged(real_time=True), "wrong", "another code than that of its version")
