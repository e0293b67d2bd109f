"""The hosts of a cluster over time: how many workers each had, and what went over the network between them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from plots import theme
from plots.data import StoredExperiment, StoredRun
from plots.figure import Figure

_MB = 1e6


def _workers_by_host(run: StoredRun) -> dict[str, NDArray[np.int64]]:
    """Returns the number of workers in each epoch by host, ascending; shape (epochs,)."""
    names = sorted({host for line in run.epochs for _, host in line.get("homes", ())})
    return {
        name: np.array([sum(host == name for _, host in line.get("homes", ())) for line in run.epochs], np.int64)
        for name in names
    }


def _workers_panel(axes: Any, run: StoredRun) -> None:
    """Draws a row per host, as high as the number of workers on it."""
    x, colour = run.seconds([line["begin_us"] for line in run.epochs]), theme.mechanism_colour(run.mechanism)
    by_host = _workers_by_host(run)
    most = max(int(workers.max()) for workers in by_host.values())
    for row, workers in enumerate(by_host.values()):
        base = np.full(len(x), float(row))
        axes.fill_between(x, base, base + 0.9 * workers / most, step="post", color=colour, alpha=0.45, linewidth=0)
        axes.step(x, base + 0.9 * workers / most, where="post", color=colour, linewidth=1.0)
    axes.set_ylim(0, len(by_host))
    axes.set_yticks([row + 0.45 for row in range(len(by_host))], [f"{n}\nup to {w.max()}" for n, w in by_host.items()])


def _draw_workers(experiment: StoredExperiment) -> Any:
    """Draws how many workers each host had in each epoch."""
    runs = _on_hosts(experiment)
    if not runs:
        return None
    figure, _, _ = theme.over_time(runs, _workers_panel, height=1.4, label="workers on each host", shared=False)
    theme.legend(figure, *theme.time_marks())
    return figure


def _pulled_per_second(run: StoredRun) -> NDArray[np.float64]:
    """Returns the bytes of state that hosts pulled from each other in each second of the load, shape (seconds,)."""
    seconds = np.maximum(run.seconds([line["end_us"] for line in run.epochs]), 0).astype(np.int64)
    size = [float(sum(pull[2] for pull in line.get("network", ()))) for line in run.epochs]
    return np.bincount(seconds, weights=size).astype(np.float64)


def _network_panel(axes: Any, run: StoredRun) -> float:
    y = _pulled_per_second(run) / _MB
    colour = theme.mechanism_colour(run.mechanism)
    axes.step(np.arange(len(y) + 1), np.append(y, 0.0), where="post", color=colour, linewidth=1.3)
    axes.fill_between(np.arange(len(y) + 1), np.append(y, 0.0), step="post", color=colour, alpha=0.2, linewidth=0)
    return float(y.max())


def _draw_network(experiment: StoredExperiment) -> Any:
    """Draws the state that went over the network in each second."""
    runs = [run for run in _on_hosts(experiment) if _pulled_per_second(run).any()]
    if not runs:
        return None
    figure, panels, found = theme.over_time(runs, _network_panel, height=1.2, label="MB pulled per second")
    theme.upwards(panels[0], max(*found, 1e-3) * 1.08)
    theme.legend(figure, *theme.time_marks())
    return figure


def _on_hosts(experiment: StoredExperiment) -> list[StoredRun]:
    return [run for run in experiment.typical() if any(line.get("homes") for line in run.epochs)]


FIGURES = (
    Figure(
        name="hosts_timeline",
        title="Workers by host",
        caption="Number of workers that each host of the cluster ran in each epoch: a row is a host.",
        order=54,
        draw=_draw_workers,
    ),
    Figure(
        name="hosts_network",
        title="State between hosts",
        caption=(
            "State that hosts pulled from each other over the network in each second; what a worker pulls on its own "
            "host goes over no network."
        ),
        order=55,
        draw=_draw_network,
    ),
)
