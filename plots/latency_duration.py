"""Highest latency while migrating over the migration's duration, one point for each mechanism."""

import statistics
from typing import Any

from plots import metrics, theme
from plots.data import StoredExperiment, StoredRun
from plots.figure import Figure

__all__ = ["FIGURE"]

_DURATION = metrics.by_name("migration_s")
_PEAK = metrics.by_name("latency_migrating_max_ms")
_STEADY = metrics.by_name("latency_steady_max_ms")


def _points(runs: list[StoredRun]) -> list[tuple[float, float]]:
    """Returns (duration, highest latency) in ms of each run that has both."""
    pairs = ((_DURATION.value(run.entry), _PEAK.value(run.entry)) for run in runs)
    # The shortest migration lasts one epoch, and a duration of 0 has no place on a log axis.
    return [(max(seconds * 1000, 1.0), peak) for seconds, peak in pairs if seconds is not None and peak]


def _cross(axes: Any, name: str, points: list[tuple[float, float]]) -> Any:
    xs, ys = [x for x, _ in points], [y for _, y in points]
    x, y = statistics.median(xs), statistics.median(ys)
    colour, marker = theme.mechanism_colour(name), theme.mechanism_marker(name)
    if len(points) > 1:
        spread = {"xerr": [[x - min(xs)], [max(xs) - x]], "yerr": [[y - min(ys)], [max(ys) - y]]}
        axes.errorbar(x, y, **spread, color=colour, linewidth=1, capsize=2, alpha=0.8)
        axes.scatter(xs, ys, s=14, color=colour, marker=marker, alpha=0.4, linewidth=0)
    return axes.scatter([x], [y], s=75, color=colour, marker=marker, edgecolor=theme.LIGHT["paper"], zorder=4)


def _controls(experiment: StoredExperiment) -> dict[str, tuple[float, float, float]]:
    """Returns the lowest, median and highest over rounds of what mechanisms without a migration reach at most."""
    out: dict[str, tuple[float, float, float]] = {}
    for name in experiment.mechanisms():
        runs = [run for run in experiment.rounds_of(name) if not run.entry.get("migrations")]
        if levels := [level for run in runs if (level := _STEADY.value(run.entry))]:
            out[name] = (min(levels), statistics.median(levels), max(levels))
    return out


def _draw(experiment: StoredExperiment) -> Any:
    """Draws medians over rounds, with every round and the spread beside them, on log axes."""
    found = {name: points for name in experiment.mechanisms() if (points := _points(experiment.rounds_of(name)))}
    if not found:
        return None
    figure, (axes,) = theme.grid_of(1, height=3.6, width=7.0)
    handles = [_cross(axes, name, points) for name, points in found.items()]
    names, controls = list(found), _controls(experiment)
    for name, (low, middle, high) in controls.items():
        colour = theme.mechanism_colour(name)
        axes.axhspan(low, high, color=colour, alpha=0.15, linewidth=0)
        handles.append(axes.axhline(middle, color=colour, linewidth=1.2, linestyle=(0, (4, 2))))
        names.append(f"{name} (no migration)")
    theme.log_ms(axes.xaxis, [x for points in found.values() for x, _ in points])
    heights = [y for points in found.values() for _, y in points]
    theme.log_ms(axes.yaxis, heights + [level for levels in controls.values() for level in levels])
    axes.set_xlabel("duration of the longest migration")
    axes.set_ylabel("highest latency while migrating")
    theme.legend(figure, handles, names, columns=4)
    return figure


FIGURE = Figure(
    name="latency_duration",
    title="Highest latency against duration",
    caption=(
        "How long a migration took and how late the latest record was meanwhile (lower left is better): the "
        "median over rounds, with each round as a small mark and lines from the lowest to the highest; the dashed "
        "level is the highest latency of a run without a migration."
    ),
    order=20,
    draw=_draw,
)
