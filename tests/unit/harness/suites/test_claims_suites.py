"""Claims that the result of a suite or a command shows, and those about a run's course."""

import json
import re

import pytest
from synthetic import write_experiment

from harness.files import ROOT, write_json
from harness.results.place import result_folder
from harness.suites import nexmark
from harness.suites.claims import verify
from harness.suites.claims.claims import ClaimSource, read_claims
from harness.suites.claims.evidence import Evidence, NotKnown
from harness.suites.claims.predicates import PREDICATES
from harness.suites.perf import suite as perf

BATCHED = "megaphone-batched"


def holds(predicate, evidence, **arguments):
    return PREDICATES[predicate](evidence, **arguments).holds


def queries(folder, *verdicts, mechanism="meces"):
    rows = [{"query": f"q{n}", "mechanism": mechanism, "verdict": verdict} for n, verdict in enumerate(verdicts)]
    (folder / "nexmark.json").write_text(json.dumps(rows))
    return Evidence(folder)


def test_queries_valid(tmp_path):
    assert holds("queries_valid", queries(tmp_path, "valid", "valid, load late"), queries=2)
    assert not holds("queries_valid", queries(tmp_path, "valid", "invalid"), queries=2)
    assert not holds("queries_valid", queries(tmp_path, "unknown", "invalid"), queries=2)
    with pytest.raises(NotKnown, match="q1 meces is unknown"):
        holds("queries_valid", queries(tmp_path, "valid", "unknown"), queries=2)
    with pytest.raises(NotKnown, match="1 of 2 queries"):
        holds("queries_valid", queries(tmp_path, "valid"), queries=2)
    found = PREDICATES["queries_valid"](queries(tmp_path, "valid", mechanism="meces with worker@migrating"), queries=1)
    assert found.figures == "1 runs of 1 queries, 1 of them with a fault, all valid"


def test_bounds_kept(tmp_path):
    def check(value, *, at_most, **edge):
        return {"sentence": "a figure", "value": value, "bound": 1.5, "at_most": at_most, **edge}

    def kept(*checks, part="rate", **more):
        write_json(tmp_path / "perf.json", {"parts": {"rate": {"checks": checks}}})
        return holds("bounds_kept", Evidence(tmp_path), part=part, **more)

    assert kept(check(1.5, at_most=True), check(1.6, at_most=False))
    assert not kept(check(1.6, at_most=True), check(1.6, at_most=False))
    assert not kept(check(1.4, at_most=False))
    assert kept(check(1.4, at_most=False), tolerance=0.1)
    assert kept(check(1.4, at_most=True, edge=1.5), check(1.6, at_most=False, edge=1.5))
    assert not kept(check(1.4, at_most=True, edge=1.6))
    assert not kept(check(1.6, at_most=False, edge=1.4))
    with pytest.raises(NotKnown, match="the part steady was not measured"):
        kept(part="steady")
    with pytest.raises(NotKnown, match="nothing to look at"):
        kept()


def test_at_least(tmp_path):
    write_experiment(tmp_path, seconds=18, rate=500, rounds=1)
    asked = {"metric": "moved_bins", "mechanisms": [BATCHED]}
    bins = Evidence(tmp_path).interval("moved_bins", BATCHED, {}).median
    assert holds("at_least", Evidence(tmp_path), **asked, limit=bins)
    assert not holds("at_least", Evidence(tmp_path), **asked, limit=bins + 1)


@pytest.mark.lengthy
@pytest.mark.parametrize(("growth", "level"), [(0.0, True), (0.0001, True), (0.01, False)])
def test_stays_level(tmp_path, growth, level):
    write_experiment(tmp_path, seconds=18, rate=500, rounds=1)
    for path in tmp_path.glob(f"runs/*{BATCHED}*/epochs.jsonl"):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        grown = [{**row, "state_bytes": 1e6 * (1 + growth * n)} for n, row in enumerate(rows)]
        path.write_text("".join(json.dumps(row) + "\n" for row in grown))
    asked = {"mechanism": BATCHED, "limit": 1.1}
    assert holds("stays_level", Evidence(tmp_path), columns=["state_bytes"], **asked) is level
    with pytest.raises(NotKnown, match="has no temperature"):
        holds("stays_level", Evidence(tmp_path), columns=["temperature"], **asked)


@pytest.mark.parametrize(
    ("kind", "module", "options"),
    [("nexmark", nexmark, {"query": "q4", "workers": "4", "quick": True}), ("perf", perf, {"part": "steady"})],
)
def test_a_result_of_the_task_itself_is_evidence(tmp_path, kind, module, options):
    source = ClaimSource("some", kind, 1, 1, options=options)
    assert verify.find(source, tmp_path) is None
    folder = result_folder(module.suite_from(options), tmp_path, force=False)
    assert verify.find(source, tmp_path) is None, "it is not finished"
    (folder / "done").touch()
    assert verify.find(source, tmp_path).folder == folder
    assert verify.find(ClaimSource("other", kind, 1, 1), tmp_path) is None


@pytest.mark.parametrize("page", ["README.md", "docs/guides/evaluator.md"])
def test_documents_state_the_times_that_claims_check(page):
    text = (ROOT / page).read_text()
    timed = [claim for claim in read_claims() if claim.predicate == "in_time"]
    assert len(timed) == 3
    for claim in timed:
        asked = claim.source.arguments
        command = " ".join(["./inv", *asked[: 2 if "--quick" in asked else 1]])
        stated = f"{claim.arguments['minutes']} minutes"
        assert claim.arguments["minutes"] == claim.source.minutes
        assert stated in claim.sentence
        assert re.search(rf"`{command}`[^`]* {stated}", text), f"{page} does not say that {command} takes {stated}"


def test_a_command_that_takes_twice_the_time_stated_fails():
    def ended(seconds, code=0):
        return Evidence(said={"seconds": seconds, "exit_code": code})

    assert holds("in_time", ended(1200), minutes=10)
    assert not holds("in_time", ended(1201), minutes=10)
    with pytest.raises(NotKnown, match="exit code 1"):
        holds("in_time", ended(60, code=1), minutes=10)


def test_a_measure_that_two_rounds_find_slower_fails():
    def said(code, *lines):
        return Evidence(said={"exit_code": code, "lines": lines})

    row = "| epoch_p50_ms | 160.0 | 1.20 (1.10 to 1.30) | **slower, confirmed** |"
    assert holds("not_slower", said(0, "## no regression: a against b"))
    assert not holds("not_slower", said(1, "## **worse**: a against b", row))
    wide = "| epoch_p50_ms | 160.0 | 1.01 (0.80 to 1.30) | not shown |"
    with pytest.raises(NotKnown, match="differ too much to tell of epoch_p50_ms"):
        holds("not_slower", said(0, "## no regression: a against b", wide))
    with pytest.raises(NotKnown, match="exit code 1"):
        holds("not_slower", said(1, "A run is invalid"))
    with pytest.raises(NotKnown, match="exit code 2"):
        holds("not_slower", said(2))
