"""Suites take what the command line has read of their options as they take texts."""

import pytest
from invoke import Context

import tasks
from harness.cli import verb
from harness.experiment.make import experiments_from
from harness.suites.nexmark import suite_from
from harness.suites.scale.scenario import make_scenario
from harness.suites.sweep import grid_from

SWEEP = {"mechanism": "none,meces", "keys": "1M,2M", "skew": "0,1", "workers": "2:4", "option": "pull_budget_bytes=4M",
         "duration": "9", "policy": "contiguous"}  # fmt: skip
NEXMARK = {"query": "q4,q8", "mechanism": "meces", "workers": "2:3", "bins": "64", "duration": "10", "quick": True}
BENCH = {"workers": "2:8", "mechanism": "none,meces", "keys": "2M", "rate": "5k", "seed": "3", "lead_in": "1.5"}
SCALE = {"mechanism": "none,meces", "workers": "10:20", "state": "1GB", "bins": "1024", "option": "bins_per_pair=2"}


def read(monkeypatch, task, texts):
    """What the task hands to its suite, by the way that a user's words go."""
    taken = []
    monkeypatch.setitem(task.body.__globals__, "run", lambda _, given: taken.append(given))
    task(Context(), **{option.name: texts.get(option.name) for option in task.options})
    return {name: value for name, value in taken[0].items() if value is not None}


@pytest.mark.parametrize(
    ("task", "texts", "make"),
    [
        (tasks.sweep, SWEEP, grid_from),
        (tasks.nexmark, NEXMARK, suite_from),
        (tasks.bench, BENCH, experiments_from),
        (tasks.simulate_scale, SCALE, make_scenario),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_texts_and_values_give_the_same(monkeypatch, task, texts, make):
    values = read(monkeypatch, task, texts)
    assert {name for name in texts if values[name] != texts[name]} >= {"mechanism", "workers"}
    assert make(values) == make(texts)


def test_a_command_ends_with_its_exit_code():
    with pytest.raises(SystemExit) as ended:
        verb.run("builtins:len", "12345")
    assert ended.value.code == 5
