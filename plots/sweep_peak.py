"""Sweep: highest latency over the swept axis."""

from typing import Any

from plots.data import StoredExperiment
from plots.figure import Figure
from plots.sweep import draw_over_axis, peak

__all__ = ["FIGURE"]


def _draw(experiment: StoredExperiment) -> Any:
    """Draws the highest latency while migrating of each mechanism."""
    return draw_over_axis(experiment, peak, "highest latency while migrating")


FIGURE = Figure(
    name="sweep_peak",
    title="Highest latency",
    caption=(
        "How late the latest record was while state moved, over the swept axis: medians and ranges of the rounds; "
        "a mechanism that never migrates shows the highest latency of its steady time."
    ),
    order=10,
    draw=_draw,
    of_sweep=True,
)
