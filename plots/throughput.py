"""Records done per second over time, one panel for each mechanism."""

from typing import Any

import numpy as np
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from plots import theme
from plots.data import StoredExperiment, StoredRun
from plots.figure import Figure
from plots.metrics import at

__all__ = ["FIGURE", "scheduled_per_second"]

_HIGHEST = 3.0  # times the highest rate of the load; the burst after a standstill would flatten everything else


def _per_second(run: StoredRun) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the ends of full seconds and the records done in each; the last, broken second is left out."""
    times, records = run.done
    kept = times >= 0
    counts = np.bincount(times[kept].astype(np.int64), weights=records[kept]).astype(np.float64)
    whole = max(len(counts) - 1, 1)
    return np.arange(1, whole + 1, dtype=np.float64), counts[:whole]


def scheduled_per_second(run: StoredRun) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the ends of full seconds and the records due in each; one stretch for a load that has but a rate."""
    if totals := run.load.get("due_by_second"):
        return np.arange(len(totals) + 1, dtype=np.float64)[1:], np.diff(np.asarray(totals, np.float64), prepend=0.0)
    rate = at(run.load, "rate")
    return (np.array([run.end_s]), np.array([rate])) if rate else (np.empty(0), np.empty(0))


def _cut(axes: Any, run: StoredRun, top: float) -> None:
    """Says how high a peak is that the panel does not show in full."""
    x, y = _per_second(run)
    if y.max() > top:
        place = (float(x[int(y.argmax())]), top)
        axes.annotate(f"▴ {y.max():,.0f}", place, xytext=(3, -3), textcoords="offset points", va="top", fontsize=8)


def _panel(axes: Any, run: StoredRun) -> float:
    x, y = theme.thin(*_per_second(run))
    x, y = np.append(0.0, x), np.append(y[0], y)
    colour = theme.mechanism_colour(run.mechanism)
    theme.shade_migrations(axes, run)
    axes.fill_between(x, y, step="pre", color=colour, alpha=0.2, linewidth=0)
    axes.step(x, y, where="pre", color=colour, linewidth=1.3)
    ends, records = scheduled_per_second(run)
    if len(records):
        steps = (np.append(0.0, ends), np.append(records[0], records))
        axes.step(*steps, where="pre", color=theme.LIGHT["ink"], linewidth=0.9, linestyle=(0, (2, 2)))
    theme.panel_title(axes, run, coloured=True)
    return float(y.max())


def _draw(experiment: StoredExperiment) -> Any:
    """Draws records done per second, with the rate of the load for comparison."""
    runs = [run for run in experiment.typical() if len(run.done[0])]
    if not runs:
        return None
    figure, panels = theme.grid_of(len(runs), height=1.2, sharex=True, sharey=True)
    top = max(_panel(axes, run) for axes, run in zip(panels, runs, strict=True))
    rates = [float(records.max()) for run in runs if len(records := scheduled_per_second(run)[1])]
    top = min(max(top, *rates, 1.0) * 1.08, _HIGHEST * max(rates, default=top))
    for axes, run in zip(panels, runs, strict=True):
        _cut(axes, run, top)
    panels[0].set_ylim(0, top)
    panels[0].yaxis.set_major_locator(theme.few_ticks())
    panels[0].yaxis.set_major_formatter(theme.thousands())
    theme.time_axis(panels, runs)
    figure.supylabel("records done per second", fontsize=9)
    ink, (marks, labels) = theme.LIGHT["ink"], theme.time_marks()
    lines = [
        Line2D([], [], color=ink, linewidth=1.3),
        Line2D([], [], color=ink, linewidth=0.9, linestyle=(0, (2, 2))),
    ]
    theme.legend(figure, [*lines, *marks], ["done", "due", *labels])
    return figure


FIGURE = Figure(
    name="throughput",
    title="Throughput",
    caption=(
        "Records whose results were handed over in each second, beside the records that were due in it: a dip "
        "followed by a peak is work that had to wait."
    ),
    order=50,
    draw=_draw,
)
