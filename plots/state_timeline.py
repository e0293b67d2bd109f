"""Bytes of state over time: what grows without end shows here."""

from typing import Any

import numpy as np

from plots import theme
from plots.data import StoredExperiment, StoredRun
from plots.figure import Figure

__all__ = ["FIGURE"]

_MIB = 1024**2


def _panel(axes: Any, run: StoredRun) -> None:
    theme.shade_migrations(axes, run)
    x = run.seconds([row["begin_us"] for row in run.epochs])
    size = np.array([row.get("state_bytes", 0) / _MIB for row in run.epochs])
    axes.plot(*theme.thin(x, size), color=theme.mechanism_colour(run.mechanism), linewidth=1.3)
    axes.set_ylim(0, max(float(size.max()), 1e-3) * 1.1)
    axes.yaxis.set_major_locator(theme.few_ticks())
    theme.panel_title(axes, run, coloured=True)


def _draw(experiment: StoredExperiment) -> Any:
    """Draws the bytes of all bins' state at the begin of each epoch."""
    runs = [run for run in experiment.typical() if any(row.get("state_bytes") for row in run.epochs)]
    if not runs:
        return None
    figure, panels = theme.grid_of(len(runs), height=1.3, sharex=True)
    for axes, run in zip(panels, runs, strict=True):
        _panel(axes, run)
    theme.time_axis(panels, runs)
    figure.supylabel("state, MiB", fontsize=9)
    theme.legend(figure, *theme.time_marks())
    return figure


FIGURE = Figure(
    name="state_timeline",
    title="State",
    caption=(
        "Bytes of the state of all bins over time: windows that end and timers that fire must give back what they took."
    ),
    order=58,
    draw=_draw,
)
