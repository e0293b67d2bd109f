"""A lost, a doubled, a wrong and a reordered result and an undecided run are told apart in every suite that judges."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import committed
import numpy as np
import pytest
from synthetic import experiment_parameters, write_run

from harness.experiment.make import make_experiment
from harness.files import ROOT, read_json, write_json
from harness.oracle.verdict import CLASSES, Differences, Facts, judge
from harness.results.entry import summarise_run
from harness.results.summary import write_result
from harness.suites.autoscale import rows as autoscale
from harness.suites.autoscale.suite import suite_from as autoscale_suite
from harness.suites.bench import exit_code
from harness.suites.changes import run as changes
from harness.suites.changes.suite import suite_from as changes_suite
from harness.suites.claims.evidence import Evidence, NotKnown
from harness.suites.claims.predicates import PREDICATES
from harness.suites.conformance import judge as conformance
from harness.suites.conformance.cases import BINS, Tour
from harness.suites.conformance.watch import Watch
from harness.suites.engines import suite as engines
from harness.suites.faults.report import FaultOutcome, report_of
from harness.suites.faults.schedule import draw_schedule
from harness.suites.nexmark import rows_of
from harness.suites.perf import part
from harness.suites.regress.trees import measures_of
from harness.suites.scale.network import read_costs
from impls.errors import StateError

NAME = "megaphone-batched"
PLANTS = {
    **{kind: ("invalid", f"1 {kind.replace('_', ' ')}") for kind in CLASSES},
    "undecided": ("unknown", "1 bins are undecided"),
    "nothing": ("valid", ""),
}
JUDGE_NOTHING = {"artifact", "hosts", "load", "options", "profile", "scale"}


def answer_of(plant):
    """What an oracle answers that has found one such result among ten."""
    totals = {kind: int(kind == plant) for kind in CLASSES}
    return judge(Differences(totals, {}, 10, 10, 0, undecided=int(plant == "undecided")), Facts(10))


@dataclass(frozen=True)
class Judged:
    """A result of one run that the oracle has judged."""

    folder: Path
    answer: dict[str, Any]
    monkeypatch: Any

    @property
    def run(self):
        return self.folder / "runs" / f"00-{NAME}-r0"

    def entry(self):
        write_run(self.run, mechanism=NAME, seconds=6, rate=200, summarise=False)
        write_json(self.run / "oracle.json", {**read_json(self.run / "oracle.json"), **self.answer})
        return summarise_run(self.run)

    def result(self):
        parameters = experiment_parameters(seconds=6, seed=1, rate=200) | {"mechanisms": [NAME]}
        self.entry()
        here = {"commit": "0" * 40, "dirty": False, "seed": 1, "host": "h", "os": "o", "architecture": "a", "cpu": "c",
                "cores": 2, "memory_bytes": 1, "versions": {}}  # fmt: skip
        write_json(self.folder / "experiment.json", {**parameters, "digest": "0" * 12, "environment": here})
        return write_result(self.folder)


def told_by(row):
    return row["verdict"], " ".join(row["reasons"])


def of_bench(judged):
    result = judged.result()
    (entry,) = result["runs"]
    assert exit_code(result) == int(entry["verdict"] != "valid")
    return told_by(entry)


def of_nexmark(judged):
    (row,) = rows_of("q5", {"runs": [judged.entry()]})
    return told_by(row)


def of_engines(judged):
    return told_by(engines.row_of({"keys": 9}, {**judged.entry(), "round": 0}, judged.run)[0])


def of_autoscale(judged):
    judged.result()
    suite = autoscale_suite({"quick": True, "mode": "real-time"})
    (row,) = autoscale.rows_of(suite, suite.cells()[0], judged.folder, read_costs())
    return told_by(row)


def of_changes(judged):
    case = changes_suite({"quick": True}).cases[0]
    one = changes.entry_of(case, judged.folder, "done", judged.answer, "")
    line = {"name": "worker@during-trial", "what": "sieve", "outcome": "done", "fired": True, "said": ""}
    assert changes.judged(judged.answer, [line]) == (one["verdict"], one["reasons"])
    return told_by(one)


def of_conformance(judged):
    history, watch = committed.make(1), Watch(NAME, {}, np.zeros(BINS, np.int32))
    judged.monkeypatch.setattr(conformance, "judge", lambda *_: judged.answer)
    (row,) = conformance.rows_of(
        Tour(NAME, "hash", "uniform", ("refused",)), watch, history.records, history.results, None,
        partitions=committed.OUTPUTS, sent=0,
    )  # fmt: skip
    return row.verdict, " ".join(row.reasons)


def of_faults(judged):
    (fault,) = draw_schedule(1, [NAME], only=["worker@after-commit"])
    report = report_of(1, [fault], [FaultOutcome(fault, "survived")], {NAME: judged.answer}, seconds=1.0)
    assert report["good"] == (judged.answer["verdict"] == "valid")
    return told_by(report["campaigns"][NAME])


def refused(ask):
    """What a suite says that compares no run unless it is valid."""
    try:
        ask()
    except StateError as error:
        verdict, _, reasons = str(error).partition(" is ")[2].partition(": ")
        return verdict, reasons
    return "valid", ""


def of_regress(judged):
    judged.result()
    return refused(lambda: measures_of(judged.folder))


def of_perf(judged):
    entry = judged.entry()

    def carry_out(runs, folder, _view):
        write_json(folder / runs[0].folder / "run-result.json", entry)

    judged.monkeypatch.setattr(part, "run_all", carry_out)
    return refused(lambda: part.interleave({"a": make_experiment(mechanism=NAME, keys=1_000)}, 1, judged.folder))


def of_claims(judged):
    judged.result()
    try:
        found = PREDICATES["all_valid"](Evidence(judged.folder))
    except NotKnown as why:
        return "unknown", str(why)
    return ("valid", "") if found.holds else ("invalid", found.figures)


ALL = {
    "autoscale": of_autoscale, "bench": of_bench, "changes": of_changes, "claims": of_claims,
    "conformance": of_conformance, "engines": of_engines, "faults": of_faults, "nexmark": of_nexmark, "perf": of_perf,
    "regress": of_regress, "sweep": of_bench,
}  # fmt: skip


@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize("suite", ALL)
def test_what_the_oracle_has_found_is_told_by_the_suite(suite, plant, tmp_path, monkeypatch):
    verdict, reasons = ALL[suite](Judged(tmp_path, answer_of(plant), monkeypatch))
    wanted, words = PLANTS[plant]
    assert verdict == wanted
    assert words in reasons
    assert not [other for _, other in PLANTS.values() if other and other != words and other in reasons]


def test_every_suite_is_there():
    folder = ROOT / "harness" / "suites"
    there = {path.stem for path in folder.iterdir() if not path.stem.startswith("_")}
    assert there == ALL.keys() | JUDGE_NOTHING
