"""Phases of every epoch over time, one panel for each mechanism."""

from typing import Any

import numpy as np

from plots import theme
from plots.data import StoredExperiment, StoredRun
from plots.epoch_phases import PHASES, phase_ms
from plots.figure import Figure

__all__ = ["FIGURE"]


def _panel(axes: Any, run: StoredRun) -> list[Any]:
    theme.shade_migrations(axes, run)
    begins = run.seconds([row["begin_us"] for row in run.epochs])
    series = [np.array(phase_ms(run.epochs, phase)) for phase in PHASES]
    x, *ys = theme.thin(begins, *series)
    theme.panel_title(axes, run, coloured=False)
    colours = [theme.LIGHT[colour] for _, colour in PHASES.values()]
    return list(axes.stackplot(x, ys, colors=colours, linewidth=0, step="post"))


def _draw(experiment: StoredExperiment) -> Any:
    """Draws the milliseconds of each phase, stacked, at the time the epoch began."""
    runs = [run for run in experiment.typical() if run.epochs]
    if not runs:
        return None
    figure, panels = theme.grid_of(len(runs), height=1.4, sharex=True)
    handles = [_panel(axes, run) for axes, run in zip(panels, runs, strict=True)]
    for axes in panels:
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_locator(theme.few_ticks())
        axes.yaxis.set_major_formatter(theme.thousands())
    theme.time_axis(panels, runs)
    figure.supylabel("milliseconds of an epoch (own scale in each panel)", fontsize=9)
    marks, labels = theme.time_marks()
    theme.legend(figure, [*handles[0], *marks], [*(label for label, _ in PHASES.values()), *labels])
    return figure


FIGURE = Figure(
    name="epoch_timeline",
    title="Epochs over time",
    caption=(
        "The time each epoch took, split into its phases, at the time it began: where a migration makes "
        "epochs longer, and in which phase."
    ),
    order=45,
    draw=_draw,
)
