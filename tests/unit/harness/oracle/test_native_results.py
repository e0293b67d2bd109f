"""Results of Spark's own count, attributed to epochs and records without Spark."""

import histories
import numpy as np
import pytest

from harness.experiment.make import make_experiment
from harness.oracle.columns import MovedBins, Ranges, Records
from harness.oracle.keycount import check
from harness.oracle.native import NativeResults, arrivals_of, as_results, cell_lines
from impls import catalog
from impls.errors import UsageError
from impls.mechanisms.native_spark.intervals import found_nothing, idle_polls, seconds_of

PRELOADED = histories.KEYS // 2


def _native(history, *, order=None):
    """The history's results as Spark's sink would have written them: partition by key, counts of preloaded keys + 1."""
    found = history.results
    partition = found.key % 2
    rows = np.lexsort((found.epoch, partition)) if order is None else order
    offset = np.concatenate([np.arange(np.sum(partition == p)) for p in range(2)])
    return NativeResults(
        partition[rows].astype(np.int32), offset, found.key[rows], (found.count + (found.key < PRELOADED))[rows],
        (found.epoch * 1_000_000 + 500_000)[rows],
    )  # fmt: skip


def _found(history, native):
    results, repeats = as_results(
        arrivals_of(history.records, history.ranges), native, preloaded=PRELOADED, bin_of=histories.bin_of,
        partitions=histories.OUTPUTS,
    )  # fmt: skip
    return check(
        history.records, results, history.ranges, bin_of=histories.bin_of, partitions=histories.OUTPUTS,
        moves=MovedBins.of([]),
    ), repeats  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
def test_right_results_are_clean_and_repeats_are_counted(seed):
    history = histories.make(seed, retries=False, migrate=False)
    native = _native(history)
    findings, repeats = _found(history, native)
    assert (findings.totals, repeats) == (dict.fromkeys(findings.totals, 0), 0)
    assert findings.results == len(history.results)
    rows = np.sort(np.append(np.arange(len(native)), 5))
    repeated = native.take(rows)
    findings, repeats = _found(history, repeated)
    assert (findings.clean, repeats) == (True, 1)


def test_results_of_the_preload_are_left_out():
    history = histories.make(3, retries=False, migrate=False)
    native = _native(history)
    made = np.arange(PRELOADED)
    offset = np.concatenate([np.arange(np.sum(made % 2 == 0)), np.arange(np.sum(made % 2 == 1))]) - 1000
    first = NativeResults((np.sort(made % 2)).astype(np.int32), offset, made[np.argsort(made % 2, kind="stable")],
                          np.ones(PRELOADED, np.int64), np.zeros(PRELOADED, np.int64))  # fmt: skip
    both = NativeResults(*(np.concatenate([getattr(first, n), getattr(native, n)]) for n in NativeResults.dtypes()))
    findings, repeats = _found(history, both.take(np.lexsort((both.offset, both.partition))))
    assert (findings.clean, repeats) == (True, 0)


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (lambda n: n.take(np.delete(np.arange(len(n)), 7)), "lost"),
        (
            lambda n: NativeResults(n.partition, n.offset, n.key, n.count + (np.arange(len(n)) == 7), n.appended_us),
            None,
        ),
        (lambda n: NativeResults(n.partition, n.offset, n.key, n.count + 1000, n.appended_us), "doubled"),
        (
            lambda n: NativeResults(n.partition ^ (np.arange(len(n)) == 7), n.offset, n.key, n.count, n.appended_us),
            "wrong",
        ),
    ],
    ids=["lost", "count ahead", "all ahead", "two partitions"],
)
def test_wrong_results_are_found(spoil, kind):
    history = histories.make(4, retries=False, migrate=False)
    findings, _ = _found(history, spoil(_native(history)))
    assert not findings.clean
    assert kind is None or findings.totals[kind] > 0


def test_a_records_latency_ends_with_the_first_result_that_counts_it():
    records = Records(np.zeros(4, np.int32), np.arange(4), np.array([7, 7, 9, 7]), np.array([100, 200, 300, 5_000_000]))
    ranges = Ranges(np.array([0, 1]), np.zeros(2, np.int32), np.array([0, 3]), np.array([3, 4]))
    native = NativeResults(
        np.zeros(3, np.int32), np.arange(3), np.array([7, 9, 7]), np.array([2, 2, 3]),
        np.array([1_000_000, 2_000_000, 6_000_000]),
    )  # fmt: skip
    lines = cell_lines(arrivals_of(records, ranges), native, preloaded=0)
    assert [(line["epoch"], line["done_us"]) for line in lines] == [(0, 1_000_000), (0, 2_000_000), (1, 6_000_000)]
    lines = cell_lines(
        arrivals_of(records, ranges), native, preloaded=10
    )  # each key has one record more, which made its state
    assert [(line["epoch"], line["done_us"]) for line in lines] == [(0, 1_000_000), (0, 2_000_000), (0, 6_000_000)]


def test_baselines_are_known_and_refuse_what_they_cannot_do():
    assert catalog.natives() == ["native-real-time", "native-repartition", "native-restart"]
    assert not set(catalog.natives()) & set(catalog.names())
    with pytest.raises(UsageError, match="no mechanism of this runtime"):
        catalog.make("native-restart")
    with pytest.raises(UsageError, match="count or processor"):
        catalog.baseline("native-restart", operator="sum")
    with pytest.raises(UsageError, match="--workload hash"):
        make_experiment(mechanism="native-restart,none", workload="dense")


def test_a_row_of_idle_polls_begins_with_waiting_and_ends_with_an_epoch():
    waiting, asking = "Waiting for data to arrive", "Getting offsets from KafkaV2[Subscribe[in]]"
    busy = [asking, asking, waiting, asking, asking, waiting, "No new data but cleaning up state", asking, waiting]
    rows, row = [], 0
    for message in busy:
        row = idle_polls(row, message)
        rows.append(row)
    assert rows == [0, 0, 1, 2, 3, 4, 0, 0, 1]
    assert idle_polls(9, "Processing new data") == idle_polls(9, "Stopped") == 0


def test_a_wait_for_the_next_trigger_counts_where_epochs_are_apart():
    following, asking = "Waiting for next trigger", "Getting offsets from KafkaV2[Subscribe[in]]"
    assert idle_polls(3, following) == 0
    messages = enumerate([following, asking, following, "Stopped"])
    assert [idle_polls(number, message, apart=True) for number, message in messages] == [1, 2, 3, 0]
    texts = ("0 seconds", "1 second", "250 milliseconds", "2 minutes")
    assert [seconds_of(text) for text in texts] == [0, 1, 0.25, 120]


def test_a_restart_that_has_run_an_epoch_waits_for_its_progress():
    waiting = "Waiting for data to arrive"
    assert found_nothing(waiting, committed=0)
    assert not found_nothing(waiting, committed=1)  # else its bins and duration would be missing from the result
    assert not found_nothing("Processing new data", committed=0)
