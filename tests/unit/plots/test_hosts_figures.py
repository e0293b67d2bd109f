"""Figures of a cluster's hosts: a row per host, bytes by second; nothing of a run on one host."""

import json

import numpy as np
import pytest
from synthetic import BIN_BYTES, HOSTS, MOVED_BINS, new_experiment

from plots.data import load
from plots.figure import svg_of
from plots.hosts import FIGURES, _pulled_per_second, _workers_by_host


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    return load(new_experiment(tmp_path_factory, seconds=12, rounds=1))


def _run(experiment, mechanism):
    return next(run for run in experiment.runs if run.mechanism == mechanism)


def test_workers_are_counted_by_host(experiment):
    run = _run(experiment, "none")
    found = _workers_by_host(run)
    assert list(found) == list(HOSTS)
    assert all(np.array_equal(workers, np.full(len(run.epochs), 2)) for workers in found.values())


def test_bytes_between_hosts_are_summed_by_second(experiment):
    moved = _pulled_per_second(_run(experiment, "megaphone-batched"))
    assert moved.sum() == 2 * MOVED_BINS * BIN_BYTES
    assert (moved > 0).sum() < len(moved)
    assert not _pulled_per_second(_run(experiment, "none")).any()


def test_every_host_is_named(experiment):
    svg = svg_of(FIGURES[0], experiment)
    assert all(host in svg for host in HOSTS)
    assert "up to 2" in svg


def test_runs_on_one_host_have_no_such_figure(tmp_path_factory):
    folder = new_experiment(tmp_path_factory, seconds=12, rounds=1)
    for path in folder.glob("runs/*/epochs.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        kept = [{k: v for k, v in line.items() if k not in {"homes", "network", "lost"}} for line in lines]
        path.write_text("".join(json.dumps(line) + "\n" for line in kept))
    experiment = load(folder)
    assert [svg_of(figure, experiment) for figure in FIGURES] == [None, None]
