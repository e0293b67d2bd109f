"""The oracle must reject what is broken, and must not pass a run that shows nothing."""

from dataclasses import replace

import histories
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.files import read_json
from harness.oracle.columns import MovedBins, Ranges, RawResults, Records, Waits
from harness.oracle.verdict import Facts, answered, judge, merge
from impls.worker.results import Deduplicator, Number


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("retries", [False, True])
def test_correct_history_is_valid(seed, retries):
    history = histories.make(seed, retries=retries)
    answer = history.judged()
    assert (answer["verdict"], answer["reasons"]) == ("valid", [])
    assert answer["crossed"] > 0
    assert (answer["repeats"] > 0) == retries
    assert answer["records"] == len(history.records)


@pytest.mark.parametrize("held", [1, 3])
def test_records_that_waited_in_a_moving_bin_belong_to_the_epoch_that_released_them(held):
    history = histories.make(8, held=held)
    answer = history.judged()
    assert (answer["verdict"], answer["reasons"]) == ("valid", [])
    assert (answer["waited"] >= 4 * held, answer["longest_wait"]) == (True, held)


def _waits_of(epochs, bins):
    return Waits.of((epoch, bin_) for epoch in epochs for bin_ in bins)


@pytest.mark.parametrize(
    "waits",
    [
        _waits_of((), ()),
        _waits_of((histories.MOVED_AT, histories.MOVED_AT + 1), (0, 1)),
        _waits_of((histories.MOVED_AT, histories.MOVED_AT + 2), (0, 1)),
        _waits_of(range(histories.MOVED_AT, histories.MOVED_AT + 4), (0, 1)),
        _waits_of(range(histories.MOVED_AT, histories.MOVED_AT + 3), (0,)),
    ],
    ids=["not told", "shorter", "with a hole", "longer", "of one bin only"],
)
def test_waiting_other_than_the_run_tells_of_is_rejected(waits):
    answer = replace(histories.make(8, held=3), waits=waits).judged()
    assert answer["verdict"] == "invalid"


def test_waiting_of_a_bin_that_never_moves_is_rejected():
    history = histories.make(8, held=3)
    answer = replace(history, moves=MovedBins.of([(histories.MOVED_AT, 1, "one")])).judged()
    assert (answer["verdict"], answer["longest_wait"]) == ("invalid", 3)
    assert answer["examples"]["lost"]["first"]["key"] < histories.KEYS // histories.BINS


def test_queue_that_is_never_released_is_lost():
    history = histories.make(8, held=histories.EPOCHS - histories.MOVED_AT)
    answer = history.judged()
    assert answer["verdict"] == "invalid"
    assert answer["lost"] > 0


def test_run_without_a_migration_is_valid():
    assert histories.make(1, migrate=False).judged()["verdict"] == "valid"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("fault", "kind"),
    [("lost bin", "lost"), ("doubled record", "doubled"), ("stale read", "lost"), ("late drop", "doubled")],
)
def test_planted_fault_is_rejected(seed, fault, kind):
    answer = histories.make(seed, fault=fault).judged()
    assert answer["verdict"] == "invalid"
    assert answer[kind] > 0
    assert set(answer["examples"][kind]) == {"first", "worst", "last"}
    assert answer["examples"][kind]["first"]["epoch"] >= histories.MOVED_AT


def _row_of(history, **wanted):
    mask = np.logical_and.reduce([getattr(history.results, name) == value for name, value in wanted.items()])
    return int(np.flatnonzero(mask)[0])


def test_lost_result_is_rejected():
    history = histories.make(2, retries=False)
    row = _row_of(history, key=0, epoch=7)
    answer = history.take_results(np.delete(np.arange(len(history.results)), row)).judged()
    assert (answer["verdict"], answer["lost"], answer["doubled"], answer["wrong"]) == ("invalid", 1, 0, 0)
    assert answer["examples"]["lost"]["worst"]["why"] == "no result"


def test_swapped_pair_of_one_key_is_out_of_order():
    history = histories.make(3, retries=False)
    rows = np.arange(len(history.results))
    one, other = _row_of(history, key=0, epoch=6), _row_of(history, key=0, epoch=7)
    rows[[one, other]] = rows[[other, one]]
    answer = history.take_results(rows).judged()
    assert answer["verdict"] == "invalid"
    assert answer["out_of_order"] > 0


def test_swapped_pair_of_one_worker_is_out_of_order():
    history = histories.make(3, retries=False)
    one, rows = _row_of(history, key=0, epoch=6), np.arange(len(history.results))
    other = _row_of(history, key=1, epoch=6)
    rows[[one, other]] = rows[[other, one]]
    answer = history.take_results(rows).judged()
    assert (answer["verdict"], answer["out_of_order"], answer["lost"]) == ("invalid", 1, 1)


def test_count_ahead_of_its_epoch_is_rejected():
    history = histories.make(4, retries=False)
    count, row = history.results.count.copy(), _row_of(history, key=1, epoch=8)
    count[row] += 1
    answer = history.with_results(count=count).judged()
    assert (answer["verdict"], answer["doubled"]) == ("invalid", 1)
    assert answer["examples"]["doubled"]["first"]["found"] == answer["examples"]["doubled"]["first"]["expected"] + 1


def test_result_in_the_partition_of_another_bin_is_wrong():
    history = histories.make(4, retries=False)
    partition, row = history.results.partition.copy(), _row_of(history, key=1, epoch=8)
    partition[row] = (partition[row] + 1) % histories.OUTPUTS
    answer = history.with_results(partition=partition).judged()
    assert answer["verdict"] == "invalid"
    assert answer["examples"]["wrong"]["first"]["why"] == "partition of another bin"


def test_unknown_key_is_wrong():
    history = histories.make(4, retries=False)
    key, row = history.results.key.copy(), _row_of(history, key=1, epoch=8)
    stranger = histories.KEYS + 1
    assert histories.bin_of(stranger) == histories.bin_of(1)
    key[row] = stranger
    answer = history.with_results(key=key).judged()
    assert (answer["verdict"], answer["lost"], answer["wrong"]) == ("invalid", 1, 1)
    first = answer["examples"]["wrong"]["first"]
    assert (first["why"], first["key"]) == ("unknown key", stranger)


def _two_epochs_of_one_key(*answers):
    """Key 0 in epochs 0 and 1; `answers` are (count, worker, epoch) in the order of the results partition."""
    epoch, none = np.arange(2), np.zeros(len(answers), np.int64)
    count, worker, of = np.array(answers, np.int64).T
    return histories.History(
        records=Records(np.zeros(2, np.int32), epoch, np.zeros(2, np.int64), epoch),
        results=RawResults(
            none.astype(np.int32), np.arange(len(of)), worker.astype(np.int32), none, of, none, none, none, count
        ),
        ranges=Ranges(epoch, np.zeros(2, np.int32), epoch, epoch + 1),
        moves=MovedBins.of([(1, 0, "one")]),
        facts=Facts(produced=2, commanded=frozenset({"one"}), completed=frozenset({"one"})),
    )


def test_answers_of_two_owners_are_out_of_order_when_the_later_one_comes_first():
    assert _two_epochs_of_one_key((1, 0, 0), (2, 1, 1)).judged()["verdict"] == "valid"
    answer = _two_epochs_of_one_key((2, 1, 1), (1, 0, 0)).judged()
    assert (answer["verdict"], answer["out_of_order"]) == ("invalid", 1)
    assert (answer["lost"], answer["doubled"], answer["wrong"]) == (0, 0, 0)


def test_result_without_a_record_in_its_epoch_is_doubled():
    answer = _two_epochs_of_one_key((1, 0, 0), (2, 1, 1), (3, 1, 2)).judged()
    assert (answer["verdict"], answer["doubled"]) == ("invalid", 1)
    assert answer["examples"]["doubled"]["first"]["why"] == "the epoch has no record of the key"


def test_repeat_that_differs_is_wrong():
    history = histories.make(4, retries=False)
    row = _row_of(history, key=1, epoch=8)
    rows = np.insert(np.arange(len(history.results)), row + 1, row)
    repeated = history.take_results(rows)
    assert repeated.judged()["verdict"] == "valid"
    count, again = repeated.results.count.copy(), _row_of(repeated, key=1, epoch=8) + 1
    count[again] += 1
    answer = repeated.with_results(count=count).judged()
    assert (answer["verdict"], answer["wrong"], answer["doubled"]) == ("invalid", 1, 0)


def test_records_that_no_epoch_absorbed_are_lost():
    history = histories.make(5)
    ranges = history.ranges.take(history.ranges.epoch < histories.EPOCHS - 1)
    results = history.results.take(history.results.epoch < histories.EPOCHS - 1)
    answer = replace(history, ranges=ranges, results=results).judged()
    missed = history.ranges.take(history.ranges.epoch == histories.EPOCHS - 1)
    assert (answer["verdict"], answer["lost"]) == ("invalid", int((missed.end - missed.begin).sum()))
    assert answer["examples"]["lost"]["first"]["why"] == "record in no committed epoch"


def test_results_for_a_truncated_input_are_doubled():
    history = histories.make(5)
    kept = history.records.offset < history.records.offset.max() - 5
    answer = replace(history, records=history.records.take(kept)).judged()
    assert answer["verdict"] == "invalid"
    assert answer["doubled"] > 0
    assert any("input topic holds" in reason for reason in answer["reasons"])


def test_whole_input_counted_twice_is_rejected():
    history = histories.make(6, retries=False)
    answer = history.with_results(count=history.results.count * 2).judged()
    assert (answer["verdict"], answer["doubled"]) == ("invalid", len(history.results))


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"completed": frozenset()}, "did not complete"),
        ({"commanded": frozenset({"one", "two"}), "completed": frozenset({"one", "two"})}, "No record crossed 1 of 2"),
        ({"produced": 1}, "generator sent 1 records"),
        ({"produced": None}, "no count"),
        ({"expected": 2}, "Only 1 of 2 migrations were commanded"),
    ],
)
def test_run_that_shows_nothing_is_unknown(facts, reason):
    history = histories.make(7)
    answer = judge(history.found(), replace(history.facts, **facts))
    assert answer["verdict"] == "unknown"
    assert any(reason in line for line in answer["reasons"])


def test_migration_that_no_record_crossed_is_unknown():
    history = replace(histories.make(7), moves=MovedBins.of([(histories.EPOCHS, 0, "one")]))
    answer = history.judged()
    assert (answer["verdict"], answer["crossed"]) == ("unknown", 0)


def test_nothing_read_is_unknown():
    history, none = histories.make(7), np.empty(0, np.int64)
    parts = {name: getattr(history, name).take(none) for name in ("records", "results", "ranges")}
    answer = replace(history, **parts, facts=Facts(produced=0)).judged()
    assert answer["verdict"] == "unknown"
    assert "Nothing to check" in answer["reasons"][0]


def test_checker_that_raises_is_unknown(tmp_path):
    def check():
        raise ValueError("a reason")

    answer = answered(tmp_path, check)
    assert read_json(tmp_path / "oracle.json") == answer
    assert (answer["verdict"], answer["lost"]) == ("unknown", 0)
    assert "ValueError: a reason" in answer["reasons"][0]


def test_verdicts_merge_by_priority():
    assert merge(["valid", "unknown", "invalid"]) == "invalid"
    assert merge(["valid", "unknown"]) == "unknown"
    assert merge(["valid", "valid"]) == "valid"
    assert merge([]) == "unknown"


@pytest.mark.parametrize("seed", range(5))
def test_oracle_drops_the_repeats_that_the_shipped_reader_drops(seed):
    history = histories.make(seed)
    r, found = history.results, history.found()
    one_by_one = Deduplicator()
    rows = zip(r.partition.tolist(), r.worker.tolist(), r.epoch.tolist(), r.index.tolist(), strict=True)
    accepted = [one_by_one.accept(part, Number(0, worker, 1, epoch, index)) for part, worker, epoch, index in rows]
    assert sum(accepted) == found.results


_CORRUPTIONS = ("drop", "again", "count", "key", "epoch", "swap counts", "swap rows", "partition", "eat", "forge")


def _corrupt(history, how, row, amount):
    """Breaks exactly one thing; every choice changes what a reader would see."""
    results, rows = history.results, np.arange(len(history.results))
    same_key = np.flatnonzero((results.key == results.key[row]) & (rows != row))
    column = {name: getattr(results, name).copy() for name in ("key", "count", "epoch", "partition", "worker")}
    match how:
        case "drop":
            return history.take_results(np.delete(rows, row))
        case "again":  # the same answer by a worker that does not own the bin
            grown = history.take_results(np.append(rows, row))
            added = int(np.flatnonzero(grown.results.partition == results.partition[row])[-1])
            return grown.with_results(worker=np.where(np.arange(len(rows) + 1) == added, 9, grown.results.worker))
        case "count" | "key":
            column[how][row] += amount
        case "epoch":
            column["epoch"][row] = max(0, results.epoch[row] + amount)
            if column["epoch"][row] == results.epoch[row]:
                column["epoch"][row] += 1
        case "partition":
            column["partition"][row] = (results.partition[row] + 1) % histories.OUTPUTS
        case "swap counts":
            other = same_key[abs(amount) % len(same_key)]
            column["count"][[row, other]] = column["count"][[other, row]]
        case "swap rows":
            other = same_key[abs(amount) % len(same_key)]
            rows[[row, other]] = rows[[other, row]]
            return history.take_results(rows)
        case "eat":
            keep = np.arange(len(history.records)) != row % len(history.records)
            return replace(history, records=history.records.take(keep))
        case "forge":
            key = history.records.key.copy()
            key[row % len(key)] = (key[row % len(key)] + abs(amount)) % histories.KEYS
            return replace(history, records=replace(history.records, key=key))
    return history.with_results(**{name: column[name] for name in ("key", "count", "epoch", "partition")})


@given(
    seed=st.integers(0, 20),
    how=st.sampled_from(_CORRUPTIONS),
    row=st.integers(0, 10_000),
    amount=st.integers(-5, 5).filter(bool),
)
@settings(max_examples=60, deadline=None)
def test_no_single_corruption_is_valid(seed, how, row, amount):
    history = histories.make(seed, retries=False)
    broken = _corrupt(history, how, row % len(history.results), amount)
    answer = broken.judged()
    assert answer["verdict"] == "invalid", (how, answer)
