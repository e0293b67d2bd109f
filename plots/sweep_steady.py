"""Sweep: latency without a migration over the swept axis."""

from typing import Any

from plots.data import StoredExperiment
from plots.figure import Figure
from plots.sweep import draw_over_axis, metric_of

__all__ = ["FIGURE"]


def _draw(experiment: StoredExperiment) -> Any:
    """Draws the 99th percentile of steady latency of each mechanism."""
    return draw_over_axis(experiment, metric_of("latency_steady_p99_ms")[1], "steady latency, p99")


FIGURE = Figure(
    name="sweep_steady",
    title="Steady latency",
    caption="What the swept axis costs with no migration under way: 99 % of the records were done within this time.",
    order=40,
    draw=_draw,
    of_sweep=True,
)
