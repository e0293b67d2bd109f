"""Latency over time, one panel for each mechanism."""

from typing import Any

from matplotlib.lines import Line2D

from plots import theme
from plots.data import StoredExperiment, StoredRun
from plots.figure import Figure

__all__ = ["FIGURE"]


def _panel(axes: Any, run: StoredRun) -> list[float]:
    rows, colour = run.timeline, theme.mechanism_colour(run.mechanism)
    x, p50, p99, most = theme.thin(rows["at_s"], rows["p50"], rows["p99"], rows["max"])
    theme.shade_migrations(axes, run)
    axes.fill_between(x, p50, p99, color=colour, alpha=0.28, linewidth=0)
    axes.fill_between(x, p99, most, color=colour, alpha=0.12, linewidth=0)
    axes.plot(x, most, color=colour, linewidth=0.8)
    axes.plot(x, p99, color=colour, linewidth=1.1, linestyle=(0, (4, 1.5)))
    axes.plot(x, p50, color=colour, linewidth=1.9)
    theme.panel_title(axes, run, coloured=True)
    return [float(v) for v in (*most, *p50)]


def _draw(experiment: StoredExperiment) -> Any:
    """Draws p50, p99 and highest latency of each 250 ms of scheduled time on a log axis."""
    runs = [run for run in experiment.typical() if len(run.timeline["at_s"])]
    if not runs:
        return None
    figure, panels = theme.grid_of(len(runs), height=1.55, sharex=True, sharey=True)
    values = [value for axes, run in zip(panels, runs, strict=True) for value in _panel(axes, run)]
    theme.log_ms(panels[0].yaxis, values)
    theme.time_axis(panels, runs)
    figure.supylabel("latency from scheduled time", fontsize=9)
    ink, (marks, labels) = theme.LIGHT["ink"], theme.time_marks()
    lines = [
        Line2D([], [], color=ink, linewidth=0.8),
        Line2D([], [], color=ink, linewidth=1.1, linestyle=(0, (4, 1.5))),
        Line2D([], [], color=ink, linewidth=1.9),
    ]
    theme.legend(figure, [*lines, *marks], ["max", "p99", "p50", *labels])
    return figure


FIGURE = Figure(
    name="latency_timeline",
    title="Latency over time",
    caption=(
        "Latency of all records scheduled within each 250 ms, from the moment each record was due to the "
        "moment its result was handed over; of several rounds the one with the middle peak is shown."
    ),
    order=10,
    draw=_draw,
)
