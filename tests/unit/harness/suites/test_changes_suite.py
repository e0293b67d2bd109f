"""The suite of changes without Spark: its operators, its cases, what its figures have to show, its faults."""

from dataclasses import replace
from struct import calcsize, unpack_from

import numpy as np
import pytest
from changed import ChangedQuery
from memory import RESULTS

from harness.experiment.parameters import REAL_TIME
from harness.oracle.changes.columns import ENTRY, HEADER, VersionEffect, leaves_out
from harness.suites.changes.cases import EXPERIMENTS, LIVE, RESTART, ChangeCase, cases_of
from harness.suites.changes.query import Tally, TallySince, request_for, version_0
from harness.suites.changes.run import FAULTS, faults_of, turned
from harness.suites.changes.suite import checks_of, report, suite_from
from impls.errors import UsageError

KEYS = 60


class ListedQuery(ChangedQuery):
    """A query of the suite's pipeline: keys are integers, and records have the suite's columns."""

    def __init__(self, folder):
        super().__init__(folder, version_0(VersionEffect(), KEYS))

    def epoch(self, records=80):
        import pyarrow as pa

        from harness.oracle.columns import hash_bins

        keys = self.random.integers(0, KEYS, records)
        offsets = np.arange(self.offset, self.offset + records)
        self.offset += records
        bins = hash_bins(16)(keys).astype(np.int32)
        empty = pa.array([None] * records, pa.int64())
        columns = {"bin": bins, "partition": np.zeros(records, np.int32), "offset": offsets, "time": empty, "key": keys}
        columns |= {"label": np.zeros(records, np.int32), "number": offsets}
        self.driver.run_epoch(pa.table(columns), self.epochs)
        self.history.append(list(zip(offsets.tolist(), keys.tolist(), strict=True)))
        self.epochs += 1

    def restart(self):
        super().restart()
        self.changes = replace(self.changes, columns=("label", "number"))

    def listed(self):
        """By offset: (shape, label), of results that are no repeats."""
        found = {}
        for _, _, _, _, value in RESULTS[str(self.folder)]:
            shape, *_ = unpack_from(HEADER, value)
            for _, offset, label in np.frombuffer(value[calcsize(HEADER) :], ENTRY).tolist():
                assert found.setdefault(offset, (shape, label)) == (shape, label)
        return found


@pytest.fixture
def query(tmp_path):
    one = ListedQuery(tmp_path)
    yield one
    one.stop()


@pytest.mark.parametrize("new", [VersionEffect(sieve=True), VersionEffect(label=2), VersionEffect(shape=2)])
def test_results_list_each_record_with_the_code_that_computed_it(query, new):
    """There and back again, by the requests that another process gives."""
    old, until = VersionEffect(), []
    for before, after in ((old, new), (new, old)):
        query.epoch()
        query.run_until(query.answer_change(request_for(query.driver.offers, before, after, KEYS))["id"])
        until.append(query.offset)
        query.epoch()
    listed, kept = query.listed(), query.offset - query.offset // 2
    for offset in range(query.offset):
        inside = until[0] <= offset < until[0] + 80
        code = new if inside else old
        if inside or offset < 80 or offset >= until[1]:
            assert listed.get(offset) == (None if leaves_out(code, offset) else (code.shape, code.label)), offset
    assert len(listed) >= kept


@pytest.mark.parametrize(("operator", "raw"), [(Tally(1), bytes(16)), (TallySince(1), bytes(8))])
def test_a_state_of_the_other_shape_is_not_read(operator, raw):
    with pytest.raises(ValueError, match="count"):
        operator.load(raw)
    value = operator.after(None, 3)
    assert operator.load(operator.dump(value)) == value


def test_cases_are_every_experiment_in_every_way():
    setting = suite_from({}).setting
    cases = cases_of(setting)
    assert len(cases) == sum(map(len, EXPERIMENTS.values())) == len({case.name for case in cases})
    assert {case.experiment for case in cases_of(setting, ["rebalance"])} == {"rebalance"}
    assert len(cases_of(setting, quick=True)) == len(cases) - 4
    moved = next(case for case in cases if case.restarts and case.moves)
    assert moved.mechanism == "runtime-restart"
    assert suite_from({"mechanism": "meces"}).cases[0].mechanism == "meces"
    assert all(case.mechanism == "megaphone-batched" for case in cases if case is not moved)


def test_a_case_is_read_as_it_was_written(tmp_path):
    import json

    for case in cases_of(suite_from({"mode": REAL_TIME}).setting):
        (tmp_path / "case.json").write_text(json.dumps(case.to_json()))
        assert ChangeCase.read(tmp_path) == case
        assert case.run("x:1").real_time


@pytest.mark.parametrize(("options", "words"), [
    ({"experiment": "merge"}, "The experiment 'merge' is unknown"),
    ({"workers": "0"}, "must be a whole number from 1"),
    ({"bins": "3"}, "power of two"),
    ({"mechanism": "none"}, "name one that moves them"),
    ({"mechanism": "meces,rhino"}, "name one that moves them"),
])  # fmt: skip
def test_bad_options_are_one_sentence(options, words):
    with pytest.raises(UsageError, match=words):
        suite_from(options)


def entry(how, peak_ratio, excess_ms, verdict="valid"):
    found = {"outcome": "done", "reasons": [], "oracle": {}, "peak_ratio": peak_ratio, "excess_ms": excess_ms}
    return {"experiment": "insert-filter", "how": how, "mode": "micro-batch", "verdict": verdict, **found}


def test_checks_are_of_valid_cases_only():
    live, restart = entry(LIVE, 1.1, 20.0), entry(RESTART, 9.0, 1400.0)
    assert [(check.value, check.holds) for check in checks_of([live, restart])] == [(1.1, True), (70.0, True)]
    assert [check.holds for check in checks_of([entry(LIVE, 1.3, 40.0), restart])] == [False, False]
    assert not checks_of([entry(LIVE, 1.1, 20.0, "invalid"), restart])
    assert len(checks_of([live, entry(RESTART, 9.0, 1400.0, "unknown")])) == 1


def test_a_result_says_what_was_asked_for_and_found(tmp_path):
    suite = suite_from({"quick": True, "experiment": "insert-filter"})
    told = report(suite, [entry(LIVE, 1.1, 20.0)], tmp_path)
    assert (tmp_path / "changes.json").exists()
    assert told["parameters"]["setting"]["keys"] == 20_000
    assert [check["holds"] for check in told["checks"]] == [True]


def test_valid_cases_are_drawn_around_their_request(tmp_path):
    rows = [{"at_s": n / 4, "max": 100.0 + n, "tag": "steady"} for n in range(40)]
    drawn = {**entry(LIVE, 1.1, 20.0), "timeline": rows, "begin_s": 5.0}
    suite = suite_from({"quick": True})
    report(suite, [drawn, {**drawn, "how": RESTART, "verdict": "invalid"}], tmp_path)
    text = (tmp_path / "changes.svg").read_text()
    assert LIVE in text
    assert RESTART not in text
    assert (tmp_path / "changes.png").exists()


def test_faults_come_in_the_order_of_their_table_and_turn_the_code():
    assert len(faults_of(14)) == 14
    assert faults_of(14)[12:] == list(FAULTS[:2])
    assert {fault.victim for fault in FAULTS} == {"worker", "driver", "jvm", "broker"}
    code = VersionEffect()
    for fault in FAULTS:
        code = turned(code, fault.what)
    assert code == VersionEffect()
    assert suite_from({"faults": 12}).cases == []
