"""Highest latency over a migration's duration, latency over percentiles, and a restart against a live migration."""

import statistics
from typing import Any

import matplotlib as mpl
import numpy as np
from hdrh.histogram import HdrHistogram
from numpy.typing import NDArray

from plots import metrics, theme
from plots.data import StoredExperiment, StoredRun
from plots.figure import Figure
from plots.metrics import IN_REAL_TIME

_DURATION = metrics.by_name("migration_s")
_PEAK = metrics.by_name("latency_migrating_max_ms")
_STEADY = metrics.by_name("latency_steady_max_ms")
_TICKS = {0: "0", 50: "50", 90: "90", 99: "99", 99.9: "99.9", 99.99: "99.99"}
_PERCENTILES = 100 - 100 * 10.0 ** -np.linspace(0, 4, 81)
_PHASES = {"steady": "no migration under way", "migrating": "during a migration"}
_RESTARTS = ("native-repartition", "native-restart", "runtime-restart", "restart")
_LIVE = ("megaphone-batched", "megaphone-fluid", "meces", "megaphone-all-at-once", "rhino")
_SOONER = tuple(f"{name}{IN_REAL_TIME}" for name in _LIVE)


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


def _draw_duration(experiment: StoredExperiment) -> Any:
    """Draws medians over rounds, with every round and the spread beside them, on log axes."""
    points_of = {name: points for name in experiment.mechanisms() if (points := _points(experiment.rounds_of(name)))}
    if not points_of:
        return None
    figure, (axes,) = theme.grid_of(1, height=3.6, width=7.0)
    handles = [_cross(axes, name, points) for name, points in points_of.items()]
    names, controls = list(points_of), _controls(experiment)
    for name, (low, middle, high) in controls.items():
        colour = theme.mechanism_colour(name)
        axes.axhspan(low, high, color=colour, alpha=0.15, linewidth=0)
        handles.append(axes.axhline(middle, color=colour, linewidth=1.2, linestyle=(0, (4, 2))))
        names.append(f"{name} (no migration)")
    theme.log_ms(axes.xaxis, [x for points in points_of.values() for x, _ in points])
    heights = [y for points in points_of.values() for _, y in points]
    theme.log_ms(axes.yaxis, heights + [level for levels in controls.values() for level in levels])
    axes.set_xlabel("duration of the longest migration")
    axes.set_ylabel("highest latency while migrating")
    theme.legend(figure, handles, names, columns=4)
    return figure


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


def _draw_percentiles(experiment: StoredExperiment) -> Any:
    """Draws the percentile spectrum of each mechanism, rounds merged."""
    groups = {name: runs for name in experiment.mechanisms() if (runs := experiment.rounds_of(name))}
    merged = {(phase, name): _merged(runs, phase) for phase in _PHASES for name, runs in groups.items()}
    if not any(merged.values()):
        return None
    figure, panels = theme.grid_of(2, height=3.4, columns=2, sharey=True)
    figure.get_layout_engine().set(wspace=0.06)
    values: list[float] = []
    lines: dict[str, Any] = {}
    for axes, (phase, title) in zip(panels, _PHASES.items(), strict=True):
        axes.set_title(title)
        for name in groups:
            if (histogram := merged[phase, name]) is not None:
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


def restart_and_live(runs: list[StoredRun]) -> list[StoredRun]:
    """Returns a run that restarts, one that migrates live, and one that does so in real time: the best known of each.

    Empty where there is none that restarts, or none that is live; the one in real time may be missing.
    """
    restart, live, sooner = (_first(runs, names) for names in (_RESTARTS, _LIVE, _SOONER))
    if restart is None or (live is None and sooner is None):
        return []
    return [run for run in (restart, live, sooner) if run is not None]


def _first(runs: list[StoredRun], names: tuple[str, ...]) -> StoredRun | None:
    return next((run for name in names for run in runs if run.mechanism == name), None)


def _draw_restart(experiment: StoredExperiment) -> Any:
    """Draws the highest latency of each 250 ms of scheduled time on a log axis, all runs in one panel."""
    chosen = restart_and_live([run for run in experiment.typical() if len(run.timeline["at_s"])])
    if not chosen:
        return None
    figure, (axes,) = theme.grid_of(1, height=1.9)
    values = [value for run in chosen for value in _drawn(axes, run)]
    theme.log_ms(axes.yaxis, values)
    theme.time_axis([axes], chosen)
    axes.set_ylabel("highest latency")
    lines, labels = axes.get_legend_handles_labels()
    shade, shaded = theme.time_marks()
    theme.shade_migrations(axes, chosen[1])
    theme.legend(figure, [*lines, *shade], [*labels, "live migration under way", *shaded[1:]])
    return figure


def _drawn(axes: Any, run: StoredRun) -> list[float]:
    x, most = theme.thin(run.timeline["at_s"], run.timeline["max"])
    axes.plot(x, most, color=theme.mechanism_colour(run.mechanism), linewidth=1.6, label=run.mechanism)
    return [float(value) for value in most]


FIGURES = (
    Figure(
        name="restart_against_live",
        title="A restart against a live migration",
        caption=(
            "Highest latency of the records scheduled within each 250 ms: a query that is stopped and started again "
            "for its migration, and one whose state moves while it runs; the same in real time where that was run."
        ),
        order=5,
        draw=_draw_restart,
    ),
    Figure(
        name="latency_duration",
        title="Highest latency against duration",
        caption=(
            "How long a migration took and how late the latest record was meanwhile (lower left is better): the "
            "median over rounds, with each round as a small mark and lines from the lowest to the highest; the dashed "
            "level is the highest latency of a run without a migration."
        ),
        order=20,
        draw=_draw_duration,
    ),
    Figure(
        name="percentile_spectrum",
        title="Percentiles of latency",
        caption=(
            "The share of records (up to 99.99 %) that were done within a given latency, from the merged "
            "histograms of all rounds: without a migration on the left, while one was under way on the right."
        ),
        order=30,
        draw=_draw_percentiles,
    ),
)
