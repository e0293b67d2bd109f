"""Latency over percentiles, up to p99.99, steady beside migrating."""

from typing import Any

import matplotlib as mpl
import numpy as np
from hdrh.histogram import HdrHistogram
from numpy.typing import NDArray

from plots import theme
from plots.data import StoredExperiment, StoredRun
from plots.figure import Figure

__all__ = ["FIGURE"]

_TICKS = {0: "0", 50: "50", 90: "90", 99: "99", 99.9: "99.9", 99.99: "99.99"}
_PERCENTILES = 100 - 100 * 10.0 ** -np.linspace(0, 4, 81)
_PHASES = {"steady": "no migration under way", "migrating": "during a migration"}


def _merged(runs: list[StoredRun], phase: str) -> Any:
    """Merges the histograms of a phase over rounds, as percentiles may never be averaged; None without records."""
    total = HdrHistogram(1, 3_600_000_000, 3)
    for run in runs:
        for tag, histogram in run.histograms.items():
            if tag.startswith(phase):
                total.add(histogram)
    return total if total.get_total_count() else None


def _curve(histogram: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns 1/(1-p) and latency in ms; percentiles that rest on less than one record are left out."""
    rank = 1 / (1 - _PERCENTILES / 100)
    kept = rank <= max(histogram.get_total_count(), 1)
    values = histogram.get_percentile_to_value_dict([float(p) for p in _PERCENTILES[kept]])
    return rank[kept], np.array([values[float(p)] / 1000 for p in _PERCENTILES[kept]])


def _percent_axis(axes: Any) -> None:
    axes.set_xscale("log")
    axes.set_xlim(1, 1e4)
    axes.xaxis.set_major_locator(mpl.ticker.FixedLocator([1 / (1 - p / 100) for p in _TICKS]))
    axes.xaxis.set_minor_locator(mpl.ticker.NullLocator())
    axes.xaxis.set_major_formatter(mpl.ticker.FixedFormatter(list(_TICKS.values())))
    axes.set_xlabel("percentile")


def _draw(experiment: StoredExperiment) -> Any:
    """Draws the percentile spectrum of each mechanism, rounds merged."""
    groups = {name: runs for name in experiment.mechanisms() if (runs := experiment.rounds_of(name))}
    found = {(phase, name): _merged(runs, phase) for phase in _PHASES for name, runs in groups.items()}
    if not any(found.values()):
        return None
    figure, panels = theme.grid_of(2, height=3.4, columns=2, sharey=True)
    figure.get_layout_engine().set(wspace=0.06)
    values: list[float] = []
    lines: dict[str, Any] = {}
    for axes, (phase, title) in zip(panels, _PHASES.items(), strict=True):
        axes.set_title(title)
        for name in groups:
            if (histogram := found[phase, name]) is not None:
                x, y = _curve(histogram)
                lines[name] = axes.plot(
                    x, y, color=theme.mechanism_colour(name), linewidth=1.6,
                    marker=theme.mechanism_marker(name), markersize=4, markevery=(0.03, 0.12),
                )[0]  # fmt: skip
                values += [float(v) for v in y]
        _percent_axis(axes)
    theme.log_ms(panels[0].yaxis, values)
    panels[0].set_ylabel("latency from scheduled time")
    theme.legend(figure, list(lines.values()), list(lines))
    return figure


FIGURE = Figure(
    name="percentile_spectrum",
    title="Percentiles of latency",
    caption=(
        "The share of records (up to 99.99 %) that were done within a given latency, from the merged "
        "histograms of all rounds: without a migration on the left, while one was under way on the right."
    ),
    order=30,
    draw=_draw,
)
