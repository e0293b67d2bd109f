"""What was not decided is unknown: in the oracle, in a run's entry and in every suite that judges."""

from types import SimpleNamespace

import committed
import numpy as np
import pytest
from synthetic import write_run

from harness.experiment.make import make_experiment
from harness.files import read_json, write_json
from harness.lab.processes import RUN_FAULT, Arming
from harness.oracle import read
from harness.oracle.columns import OracleError
from harness.oracle.nexmark.run import doubts_of_second
from harness.oracle.verdict import CLASSES, Differences, Facts, answered, doubted, judge, merge
from harness.report.comparison import worst_verdict
from harness.results.entry import summarise_run
from harness.suites.bench import bench, exit_code
from harness.suites.changes.run import judged
from harness.suites.conformance.cases import BINS, SCENARIOS, Tour
from harness.suites.conformance.judge import rows_of
from harness.suites.conformance.watch import Watch
from harness.suites.faults.report import FaultOutcome, report_of
from harness.suites.faults.schedule import draw_schedule
from harness.suites.regress.decide import TIMES, compare
from impls.errors import StateError

RIGHT = Differences(dict.fromkeys(CLASSES, 0), {}, 10, 10, 0)


@pytest.mark.parametrize(
    ("parts", "whole"),
    [
        ([], "unknown"), (["valid"], "valid"), (["valid", "unknown"], "unknown"),
        (["valid", "unknown", "invalid"], "invalid"), (["valid", "running"], "unknown"), ([""], "unknown"),
    ],
)  # fmt: skip
def test_the_worst_part_is_the_verdict_of_the_whole(parts, whole):
    assert merge(parts) == whole
    assert worst_verdict([SimpleNamespace(verdict=part) for part in parts]) == whole
    assert exit_code({"runs": [{"verdict": part} for part in parts]}) == int(whole != "valid")


@pytest.mark.parametrize(("verdict", "whole"), [("valid", "unknown"), ("unknown", "unknown"), ("invalid", "invalid")])
def test_a_doubt_makes_nothing_valid_and_hides_nothing(verdict, whole):
    assert doubted(verdict, ["the clock was stepped"]) == whole
    assert doubted(verdict, []) == verdict


def second_stage(*, ends=True, behind=1):
    """Events and epochs of a second stage that migrates in epoch 2."""
    kinds = [("command", {}), ("migration_begin", {"epoch": 2}), *([("migration_end", {"epoch": 2})] if ends else [])]
    events = [{"kind": kind, "id": "a", "label": "there", "at_us": 2, **more} for kind, more in kinds]
    records = {1: 5, 2: 5, 3: behind}
    return events, [{"epoch": n, "begin_us": n, "end_us": n, "records": found} for n, found in records.items()]


@pytest.mark.parametrize(
    ("given", "expected", "words"),
    [
        (second_stage(), 1, ""),
        (([], []), 0, ""),
        (([], []), 1, "Only 0 of 1 migrations were commanded of the second stage."),
        (second_stage(ends=False), 1, "Of the second stage, its migration there had not ended."),
        (second_stage(behind=0), 1, "Of the second stage, no record had come behind its migration there."),
        ((second_stage()[0], []), 1, "Of the second stage, no record had come behind its migration there."),
    ],
)
def test_a_second_stage_that_has_not_migrated_under_records_makes_a_run_unknown(given, expected, words):
    right = {"verdict": "valid", "reasons": []}
    found = doubts_of_second(right, *given, expected)
    assert found == ({"verdict": "unknown", "reasons": [words]} if words else right)


def test_an_undecided_bin_makes_a_run_unknown_and_a_finding_invalid():
    undecided = Differences(dict.fromkeys(CLASSES, 0), {}, 10, 10, 0, undecided=1)
    answer = judge(undecided, Facts(10))
    assert (answer["verdict"], answer["undecided"]) == ("unknown", 1)
    assert "1 bins are undecided" in answer["reasons"][0]
    lost = Differences({**dict.fromkeys(CLASSES, 0), "lost": 1}, {}, 10, 10, 0, undecided=1)
    assert judge(lost, Facts(10))["verdict"] == "invalid"
    assert judge(RIGHT, Facts(10))["verdict"] == "valid"


@pytest.fixture
def undecidable(monkeypatch):
    """No commit is looked at for long, so that those of three partitions cannot be explained."""
    monkeypatch.setattr("harness.oracle.commits._STEPS_MOST", 0)


@pytest.mark.usefixtures("undecidable")
def test_commits_that_nobody_can_explain_are_no_finding_and_not_valid():
    history = committed.make(1, partitions=3)
    found = committed.check(
        history.records, history.results, bin_of=committed.bin_of, partitions=committed.OUTPUTS, moves=history.moves,
        next_offsets=history.offsets,
    )  # fmt: skip
    assert found.clean
    assert found.undecided > 0
    assert judge(found, Facts(len(history.records)))["verdict"] == "unknown"


def test_a_checker_that_raises_leaves_the_run_unknown(tmp_path):
    def check():
        raise MemoryError("too many records")

    assert answered(tmp_path, check)["verdict"] == "unknown"
    assert read_json(tmp_path / "oracle.json")["reasons"] == [
        "The checker could not finish: MemoryError: too many records"
    ]


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (Facts(None), "left no count"),
        (Facts(11), "sent 11 records"),
        (Facts(10, expected=1), "Only 0 of 1 migrations"),
        (Facts(10, frozenset({"a"})), "1 of 1 migrations did not complete"),
        (Facts(10, frozenset({"a"}), frozenset({"a"})), "No record crossed"),
    ],
)
def test_a_run_that_shows_nothing_is_unknown(facts, reason):
    answer = judge(RIGHT, facts)
    assert answer["verdict"] == "unknown"
    assert any(reason in sentence for sentence in answer["reasons"])


class _Topic:
    """A broker's topic of one partition, as the oracle's client shows it."""

    def __init__(self, begin, end, **_):
        self._begin, self._end = begin, end

    def __call__(self, **_):
        return self

    def partitions_for_topic(self, _):
        return {0}

    def beginning_offsets(self, partitions):
        return dict.fromkeys(partitions, self._begin)

    def end_offsets(self, partitions):
        return dict.fromkeys(partitions, self._end)

    def position(self, _):
        return self._begin

    def poll(self, **_):
        return {}

    def assign(self, _): ...

    seek_to_beginning = close = lambda *_: None


@pytest.mark.parametrize(
    ("topic", "deadline_s", "reason"),
    [(_Topic(3, 5), 60.0, "deleted the first 3 messages"), (_Topic(0, 5), 0.0, "for 0 s, and 1 of its partitions")],
)
def test_a_topic_that_is_not_whole_cannot_be_checked(monkeypatch, topic, deadline_s, reason):
    monkeypatch.setattr(read, "KafkaConsumer", topic)
    with pytest.raises(OracleError, match=reason):
        read.read_results("broker:9092", "out", deadline_s=deadline_s)


def _summarised(folder, fault):
    """A run of an experiment with a fault, whose description is in the folder of each of its runs."""
    path = folder / "runs" / "00-megaphone-batched-r0"
    write_run(path, mechanism="megaphone-batched", seconds=6, rate=200, summarise=False)
    experiment = make_experiment(mechanism="megaphone-batched", fault="worker@migrating")
    (run,) = [run for run in experiment.runs() if run.fault == fault]
    about = {**read_json(path / "run.json"), "fault": experiment.fault, "mechanism": run.title}
    write_json(path / "run.json", about)
    return path


def test_a_disturbed_run_whose_fault_never_fired_is_unknown(tmp_path):
    path = _summarised(tmp_path, "worker@migrating")
    entry = summarise_run(path)
    assert (entry["verdict"], entry["withheld"]) == ("unknown", True)
    assert "The fault worker@migrating has not happened." in entry["reasons"]
    Arming(path / RUN_FAULT).tell(RUN_FAULT, 1)
    assert summarise_run(path)["verdict"] == "valid"


def test_an_undisturbed_run_needs_no_fault(tmp_path):
    assert summarise_run(_summarised(tmp_path, None))["verdict"] == "valid"


def _fault_report(verdict, *, short=0, skipped=False):
    schedule = draw_schedule(1, ["megaphone-fluid"], only=["worker@after-commit", "worker@before-report"])
    outcomes = [FaultOutcome(fault, "survived") for fault in schedule]
    outcomes[-1] = FaultOutcome(schedule[-1], verdict)
    if skipped:
        outcomes = [FaultOutcome(fault, "skipped") for fault in schedule]
    answers = {"megaphone-fluid": {"verdict": "valid", "reasons": []}}
    return report_of(1, schedule, outcomes[: len(outcomes) - short], answers, seconds=1.0)


@pytest.mark.parametrize(
    "report", [_fault_report("missed"), _fault_report("survived", short=1), _fault_report("survived", skipped=True)]
)
def test_a_campaign_whose_fault_did_not_happen_is_unknown(report):
    assert report["campaigns"]["megaphone-fluid"]["verdict"] == "unknown"
    assert report["campaigns"]["megaphone-fluid"]["reasons"]
    assert not report["good"]


def test_a_campaign_whose_faults_happened_is_valid():
    report = _fault_report("survived")
    assert (report["campaigns"]["megaphone-fluid"]["verdict"], report["good"]) == ("valid", True)


def test_a_fault_test_without_a_fault_shows_nothing():
    assert not report_of(1, [], [], {}, seconds=0.0)["good"]


LINE = {"name": "worker@during-trial", "what": "sieve", "outcome": "done", "fired": True, "said": ""}


@pytest.mark.parametrize(
    ("lines", "verdict"),
    [
        ([], "unknown"),
        ([LINE], "valid"),
        ([LINE, {**LINE, "fired": False, "said": "the fault did not happen"}], "unknown"),
    ],
)
def test_a_campaign_of_changes_is_as_good_as_its_faults(lines, verdict):
    assert judged({"verdict": "valid", "reasons": []}, lines)[0] == verdict
    assert judged({"verdict": "invalid", "reasons": ["1 lost"]}, lines)[0] == "invalid"


@pytest.mark.parametrize("scenario", [name for name in SCENARIOS if name != "refused"])
def test_a_case_without_its_migrations_is_unknown(scenario):
    history = committed.make(1)
    watch = Watch("megaphone-fluid", {}, np.zeros(BINS, np.int32))
    tour = Tour("megaphone-fluid", "hash", "uniform", (scenario,))
    (row,) = rows_of(
        tour, watch, history.records.take(np.arange(0)), history.results.take(np.arange(0)), None,
        partitions=committed.OUTPUTS, sent=0,
    )  # fmt: skip
    assert row.verdict == "unknown"
    assert any("migrations were seen" in reason for reason in row.reasons)


@pytest.mark.parametrize("runs", [[], [{}], [{"megaphone-fluid": {"records": 5.0}}] * 6])
def test_a_comparison_without_a_measured_time_is_none(runs):
    with pytest.raises(StateError, match="Nothing can be compared"):
        compare({"base": runs, "head": runs}, list)


def test_a_comparison_of_the_same_times_finds_no_change():
    runs = [{"megaphone-fluid": dict.fromkeys(TIMES, 100.0 + i)} for i in range(6)]
    assert compare({"base": runs, "head": runs}, list)[0] == "same"


@pytest.mark.parametrize("verdict", ["valid", "invalid", "unknown"])
def test_an_earlier_result_is_as_good_as_its_runs(tmp_path, monkeypatch, verdict):
    experiment = make_experiment(mechanism="megaphone-fluid")
    earlier = tmp_path / "20260101-000000-bench"
    earlier.mkdir()
    write_json(earlier / "experiment.json", {"digest": experiment.digest()})
    write_json(earlier / "result.json", {"runs": [{"verdict": verdict}]})
    (earlier / "done").touch()
    monkeypatch.setattr("harness.suites.bench.unchanged", lambda _folder: True)
    assert bench(experiment, tmp_path) == (earlier, int(verdict != "valid"))
