"""Variants are compared round by round, and what was finished before is not run again."""

import pytest

from harness.experiment.make import make_experiment
from harness.files import write_json
from harness.suites.perf import part
from impls.errors import StateError, UsageError


@pytest.fixture
def busy():
    """How often the machine is busy during a run, by its folder."""
    return {}


@pytest.fixture
def carried_out(monkeypatch, busy):
    """Replaces the runs' processes: each run's epoch takes as many ms as its experiment has thousands of keys.

    The machine is busy during a run as often as `busy` says.
    """
    order = []

    def carry_out(runs, folder, _view):
        for run in runs:
            place = folder / run.folder
            if (place / "done").exists():
                continue
            order.append(run.folder)
            entry = {"verdict": "valid", "reasons": [], "epoch_ms": {"p50": run.experiment.keys / 1000}}
            entry["warmup_s"] = None if order.count(run.folder) == 1 and run.folder == "00-b" else 2.5
            entry["machine"] = "busy" if order.count(run.folder) <= busy.get(run.folder, 0) else "quiet"
            write_json(place / "run-result.json", entry)
            (place / "done").touch()

    monkeypatch.setattr(part, "run_all", carry_out)
    return order


def variants():
    return {
        name: make_experiment(mechanism="none", migration="none", keys=keys)
        for name, keys in {"a": 1000, "b": 3000}.items()
    }


@pytest.mark.capability
def test_every_variant_runs_once_a_round_and_ratios_are_those_of_one_round(tmp_path, carried_out):
    found = part.interleave(variants(), 3, tmp_path)
    assert sorted(carried_out) == [f"{number:02d}-{name}" for number in range(3) for name in "ab"]
    assert [name[:2] for name in carried_out] == ["00", "00", "01", "01", "02", "02"]
    assert part.ratio(found["b"], found["a"], "epoch_ms", "p50").values == (3.0, 3.0, 3.0)


def test_what_was_finished_is_not_run_again(tmp_path, carried_out):
    part.interleave(variants(), 1, tmp_path)
    carried_out.clear()
    part.interleave(variants(), 2, tmp_path)
    assert sorted(carried_out) == ["01-a", "01-b"]


def test_a_round_on_a_busy_machine_is_made_anew_as_a_whole_up_to_a_limit(tmp_path, carried_out, busy):
    busy |= {"00-b": 1, "01-a": 9}
    found = part.interleave(variants(), 3, tmp_path)
    times = [carried_out.count(f"{number:02d}-{name}") for number in range(3) for name in "ab"]
    assert times == [2, 2, 3, 3, 1, 1]
    assert [entry["machine"] for entry in found["a"]] == ["quiet", "busy", "quiet"]


def test_a_run_that_never_warmed_up_is_run_anew_where_that_matters(tmp_path, carried_out):
    with pytest.raises(StateError, match="00-b never warmed up"):
        part.interleave(variants(), 1, tmp_path, warm=True)
    found = part.interleave(variants(), 1, tmp_path, warm=True)
    assert (carried_out.count("00-a"), carried_out.count("00-b")) == (1, 2)
    assert [entry["warmup_s"] for entry in (*found["a"], *found["b"])] == [2.5, 2.5]


def test_a_run_that_is_not_valid_or_failed_stops_it(tmp_path, carried_out):
    part.interleave(variants(), 1, tmp_path)
    write_json(tmp_path / "runs" / "00-a" / "run-result.json", {"verdict": "invalid", "reasons": ["3 lost"]})
    with pytest.raises(StateError, match="is invalid: 3 lost"):
        part.interleave(variants(), 1, tmp_path)
    write_json(tmp_path / "runs" / "00-a" / "error.json", {"error": "No broker."})
    with pytest.raises(UsageError, match="No broker"):
        part.interleave(variants(), 1, tmp_path)


def test_a_run_that_never_warmed_up_has_no_ratio():
    with pytest.raises(StateError, match="A run has no epoch_ms p50, as it never warmed up"):
        part.ratio([{"epoch_ms": {"p50": None}}], [{"epoch_ms": {"p50": 1.0}}], "epoch_ms", "p50")
