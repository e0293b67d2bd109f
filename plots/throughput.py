"""Records done per second over time, one panel for each mechanism."""

from typing import Any

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from plots import theme
from plots.data import Experiment, Run, thin
from plots.figure import Figure
from plots.metrics import at

__all__ = ["FIGURE"]


def _per_second(run: Run) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the begins of full seconds and the records done in each."""
    times, records = run.done
    kept = times >= 0
    counts = np.bincount(times[kept].astype(np.int64), weights=records[kept]).astype(np.float64)
    return np.arange(len(counts), dtype=np.float64), counts


def _panel(axes: Any, run: Run) -> float:
    x, y = thin(*_per_second(run))
    colour = theme.mechanism_colour(run.mechanism)
    theme.shade_migrations(axes, run)
    axes.fill_between(x, y, step="post", color=colour, alpha=0.2, linewidth=0)
    axes.step(x, y, where="post", color=colour, linewidth=1.3)
    if rate := at(run.load, "rate"):
        axes.axhline(rate, color=theme.LIGHT["ink"], linewidth=0.9, linestyle=(0, (2, 2)))
    theme.panel_title(axes, run)
    return float(y.max())


def draw(experiment: Experiment) -> Any:
    """Draws records done per second, with the rate of the load for comparison."""
    runs = [run for run in experiment.typical() if len(run.done[0])]
    if not runs:
        return None
    figure, panels = theme.grid_of(len(runs), height=1.2, sharex=True, sharey=True)
    top = max(_panel(axes, run) for axes, run in zip(panels, runs, strict=True))
    panels[0].set_ylim(0, top * 1.08)
    panels[0].yaxis.set_major_locator(theme.few_ticks())
    panels[0].yaxis.set_major_formatter(theme.thousands())
    panels[0].set_xlim(left=0)
    panels[-1].set_xlabel("seconds since the load began")
    figure.supylabel("records done per second", fontsize=9)
    ink = theme.LIGHT["ink"]
    theme.legend(
        figure,
        [
            Line2D([], [], color=ink, linewidth=1.3),
            Line2D([], [], color=ink, linewidth=0.9, linestyle=(0, (2, 2))),
            Patch(color=theme.LIGHT["shade"]),
        ],
        ["done", "rate of the load", "migration under way"],
    )
    return figure


FIGURE = Figure(
    name="throughput",
    title="Throughput",
    caption=(
        "Records whose results were handed over in each second, beside the constant rate at which they were "
        "due: a dip followed by a peak is work that had to wait."
    ),
    order=50,
    draw=draw,
)
