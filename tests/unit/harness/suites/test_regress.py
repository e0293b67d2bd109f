"""A slowdown is found, chance is not: the decisions of `./inv regress` on runs with the noise of a shared machine."""

import json
from pathlib import Path

import numpy as np
import pytest

from harness.files import write_json
from harness.options.declared import read_given
from harness.suites.options import REGRESS
from harness.suites.regress.decide import (
    NOT_SHOWN,
    TIMES,
    changed_counts,
    compare,
    confirmed,
    find,
    overall,
    resampled,
    sides,
)
from harness.suites.regress.run import Comparison, append, base_of, bench_options, line_of, markdown, run_regress, store
from harness.suites.regress.trees import Tree, measures_of, revision
from impls.errors import StateError, UsageError

PAIRS = 9
COMMITS = {"base": "b" * 40, "head": "h" * 40}


def runs(seed, slowdown=1.0, pairs=PAIRS):
    """Runs in the order they are made: a machine that drifts slowly by half, and 6 % of noise in each measure."""
    random = np.random.default_rng(seed)
    drift = 1 + 0.25 * np.sin(np.linspace(0, random.uniform(2, 9), 2 * pairs) + random.uniform(0, 6))
    out = {"base": [], "head": []}
    for place, side in enumerate(sides(pairs)):
        own = slowdown if side == "head" else 1.0
        times = {name: 200 * drift[place] * own * random.lognormal(0, 0.06) for name in TIMES}
        out[side].append({"m": {**times, "records": 100.0, "moved_bytes": 4096.0}})
    return out


@pytest.mark.capability
def test_a_planted_slowdown_of_a_fifth_is_found_and_confirmed():
    found = [compare(runs(seed, 1.2), lambda seed=seed: runs(seed + 100, 1.2))[0] for seed in range(20)]
    assert found.count("worse") >= 19


def test_twenty_comparisons_of_a_revision_with_itself_are_quiet():
    asked = []

    def again(seed):
        asked.append(seed)
        return runs(seed + 100)

    found = [compare(runs(seed), lambda seed=seed: again(seed))[0] for seed in range(20)]
    assert found == ["same"] * 20


@pytest.mark.parametrize("seed", range(5))
def test_twenty_resamplings_of_one_pool_are_quiet(seed):
    assert [verdict for verdict, _ in resampled(runs(seed), 20)] == ["same"] * 20


def test_a_pool_that_differs_by_its_sides_is_resampled_without_them():
    slower = runs(1, 1.5)
    assert compare(slower, lambda: runs(2, 1.5))[0] == "worse"
    said = [found["findings"]["m"][0].ratio.median for _, found in resampled(slower, 40)]
    assert min(said) < 1 < max(said)


def test_resampling_two_revisions_is_refused(capsys):
    assert run_regress({"base": "HEAD~1", "head": "HEAD", "resample": "20"}) == 2
    assert "a revision with itself" in capsys.readouterr().err


def test_a_suspect_that_the_second_round_does_not_confirm_is_no_regression():
    verdict, found = compare(runs(1, 1.2), lambda: runs(2))
    assert verdict == "same"
    text = markdown(COMMITS, verdict, found)
    assert "no regression" in text
    assert "slower, not confirmed" in text
    assert confirmed(found["findings"]["m"], found["second"]["m"]) == []


def test_a_measure_that_differs_too_much_from_run_to_run_is_not_called_unchanged():
    def pairs(*ratios):
        return {
            "base": [{"m": {TIMES[0]: 100.0}}] * len(ratios),
            "head": [{"m": {TIMES[0]: 100.0 * r}} for r in ratios],
        }

    for ratios, word in (((0.99, 1.0, 1.02, 1.0), "no difference"), ((0.7, 1.0, 1.4, 1.0), NOT_SHOWN)):
        verdict, found = compare(pairs(*ratios), lambda: pytest.fail("nothing is suspect"))
        assert verdict == "same"
        (row,) = (line for line in markdown(COMMITS, verdict, found).splitlines() if line.startswith(f"| {TIMES[0]}"))
        assert row.endswith(f"| {word} |")


def test_a_faster_head_is_said_to_be_faster():
    findings = find(*([run["m"] for run in runs(3, 0.8)[side]] for side in ("base", "head")))
    assert {finding.verdict for finding in findings} == {"better"}
    assert compare(runs(3, 0.8), lambda: pytest.fail("nothing is suspect"))[0] == "same"


def test_counts_need_no_statistics():
    base, head = [{"records": 5.0, "pulls": 8.0}] * 2, [{"records": 5.0, "pulls": 16.0}] * 2
    counts = changed_counts(base, head)
    assert counts == {"pulls": (8.0, 16.0)}
    assert overall([], counts) == "worse"
    assert overall([], {"pulls": (16.0, 8.0)}) == "same"
    assert changed_counts([{"pulls": 8.0}, {"pulls": 9.0}], head) == {}, "it depends on time"


def test_the_sides_take_turns_fairly():
    order = sides(8)
    assert order.count("base") == order.count("head") == 8
    places = [np.mean([i for i, side in enumerate(order) if side == name]) for name in ("base", "head")]
    assert places[0] == places[1]


def result(folder, verdict="valid"):
    entry = {
        "mechanism": "m", "verdict": verdict, "reasons": ["why"], "folder": "runs/00", "generator": {"records": 50},
        "epoch_ms": {"steady": {"p50": 100.0, "p99": 150.0}},
        "latency_ms": {"steady": {"p50": 200.0, "p99": None}, "migrating": {"p99": 300.0}},
        "migrations": [{"bins": 2, "bytes": 4096}],
    }  # fmt: skip
    (folder / "runs" / "00").mkdir(parents=True)
    write_json(folder / "result.json", {"runs": [entry]})
    (folder / "runs" / "00" / "plan.jsonl").write_text(json.dumps({"pulls": [[1, 0], [2, 0]]}) + "\n")
    return folder


def test_measures_are_those_of_the_result_and_an_invalid_run_is_none(tmp_path):
    found = measures_of(result(tmp_path / "a"))["m"]
    assert found == {
        "epoch_p50_ms": 100.0, "epoch_p99_ms": 150.0, "steady_p50_ms": 200.0, "migrating_p99_ms": 300.0,
        "records": 50.0, "moved_bins": 2.0, "moved_bytes": 4096.0, "pulls": 2.0,
    }  # fmt: skip
    with pytest.raises(StateError, match="invalid: why"):
        measures_of(result(tmp_path / "b", "invalid"))


def test_a_round_that_was_cut_off_goes_on_where_it_was(tmp_path):
    class Bench:
        def __init__(self):
            self.made = 0

        def bench(self, output, options):
            self.made += 1
            assert options == ["--keys", "9"]
            return result(output / "result")

    trees = {"base": Bench(), "head": Bench()}
    for pairs, made in ((2, 2), (3, 3)):
        comparison = Comparison(trees, tmp_path, ["--keys", "9"], pairs)
        found = comparison.round(1)
        assert [tree.made for tree in trees.values()] == [made, made]
        assert len(found["base"]) == len(found["head"]) == pairs


def test_the_history_has_a_line_per_comparison_and_a_page(tmp_path):
    for commit in ("1" * 40, "2" * 40):
        append(tmp_path / "history.jsonl", commit, runs(4)["head"])
    lines = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert [line["commit"][0] for line in lines] == ["1", "2"]
    assert lines[0]["m"] == line_of("1", runs(4)["head"])["m"]
    page = (tmp_path / "trend.html").read_text()
    assert page.count("<svg") == 1
    assert "http-equiv" not in page


def test_a_revision_that_is_not_there_is_one_sentence():
    with pytest.raises(UsageError, match="no revision 'nowhere'"):
        revision("nowhere")
    assert len(revision("HEAD")) == 40


def test_a_stored_comparison_names_the_base_of_later_ones(tmp_path):
    stored = tmp_path / "regress.json"
    with pytest.raises(UsageError, match=r"regress\.json names no revision to compare with: name one with --base"):
        base_of(stored)
    _, found = compare(runs(1, 1.2), lambda: runs(2, 1.3))
    store(COMMITS, ["--keys", "9"], found, {"cores": 2}, stored)
    assert base_of(stored) == COMMITS["base"]
    kept = json.loads(stored.read_text())
    assert (kept["bench"], kept["machine"]) == (["--keys", "9"], {"cores": 2})
    assert set(kept["ratios"]["m"]) == set(TIMES)
    assert kept["ratios"]["m"][TIMES[0]]["head_over_base"].startswith("1.3"), "of the second round, which decides"


@pytest.mark.parametrize(("given", "passed"), [("2", "2:2"), ("2:3", "2:3")])
def test_workers_as_bench_reads_them_are_passed_on_to_it(given, passed):
    options = bench_options(read_given(REGRESS, {"workers": given, "quick": True}))
    assert options[options.index("--workers") + 1] == passed


def test_a_tree_in_a_folder_of_the_caller_is_found_from_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "requirements.lock").touch()
    assert Tree(Path("tree"), "abc").path == tmp_path / "tree"
