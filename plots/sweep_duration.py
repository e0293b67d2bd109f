"""Sweep: duration of the longest migration over the swept axis."""

from typing import Any

from plots.data import StoredExperiment, StoredRun
from plots.figure import Figure
from plots.metrics import by_name
from plots.sweep import draw_over_axis

__all__ = ["FIGURE"]

_DURATION = by_name("migration_s")


def _duration_ms(run: StoredRun) -> float | None:
    seconds = _DURATION.value(run.entry)
    return None if seconds is None else max(seconds * 1000, 1.0)


def _draw(experiment: StoredExperiment) -> Any:
    """Draws the duration of the longest migration of each mechanism."""
    return draw_over_axis(experiment, _duration_ms, "duration of the longest migration")


FIGURE = Figure(
    name="sweep_duration",
    title="Duration",
    caption="How long the longest migration took from its first to its last moved bin, over the swept axis.",
    order=20,
    draw=_draw,
    of_sweep=True,
)
