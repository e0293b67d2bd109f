"""What the figures of a sweep share: curves over the swept axis, one panel per combination of the other axes."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from plots import theme
from plots.data import StoredExperiment, StoredRun
from plots.metrics import Metric, by_name

__all__ = ["AXIS_LABELS", "Curve", "curves", "draw_over_axis", "metric_of", "panels_of", "peak"]

AXIS_LABELS = {
    "keys": "keys",
    "bins": "bins",
    "rate": "records per second",
    "skew": "exponent of the Zipf law (0: uniform)",
    "policy": "placement policy",
}
_TIED = {"bins": ("keys",), "keys": ("bins",)}  # may vary together with the axis; then they make no panel
_MIGRATING, _STEADY = by_name("latency_migrating_max_ms"), by_name("latency_steady_max_ms")
_COLUMNS_MAX = 3

Value = Callable[[StoredRun], float | None]


def peak(run: StoredRun) -> float | None:
    """Returns the highest latency while migrating; without a migration that of steady time, as the control."""
    return (_MIGRATING if run.entry.get("migrations") else _STEADY).value(run.entry)


@dataclass(frozen=True, slots=True)
class Curve:
    """A mechanism's points in order of x: median, lowest and highest over rounds."""

    mechanism: str
    x: list[Any]
    middle: list[float]
    low: list[float]
    high: list[float]


def panels_of(experiment: StoredExperiment) -> list[dict[str, Any]]:
    """Returns the combinations of the other axes that vary, one panel each; an axis that follows x makes none."""
    x, cells = experiment.grid["x"], experiment.cells()
    others = [axis for axis in experiment.grid["varied"] if axis != x]
    tied = [axis for axis in others if axis in _TIED.get(x, ()) and _follows(cells, x, axis)]
    found = [{axis: cell[axis] for axis in others if axis not in tied} for cell in cells]
    return [panel for number, panel in enumerate(found) if panel not in found[:number]]


def _follows(cells: list[dict[str, Any]], x: str, axis: str) -> bool:
    return len({(cell[x], cell[axis]) for cell in cells}) == len({cell[x] for cell in cells})


def curves(experiment: StoredExperiment, panel: dict[str, Any], value: Value) -> list[Curve]:
    """Returns a panel's curves, of the mechanisms that have a point in it."""
    x = experiment.grid["x"]
    places = list(dict.fromkeys(cell[x] for cell in experiment.cells()))
    places = places if x == "policy" else sorted(places)
    out = []
    for name in experiment.mechanisms():
        points: dict[Any, list[float]] = {}
        for run in experiment.rounds_of(name):
            here = all(run.cell[axis] == at for axis, at in panel.items())
            if here and (number := value(run)) is not None:
                points.setdefault(run.cell[x], []).append(number)
        at = [place for place in places if place in points]
        if at:
            columns = [[f(points[place]) for place in at] for f in (statistics.median, min, max)]
            out.append(Curve(name, at, *columns))
    return out


def _scale_x(axes: Any, x: str, places: list[Any]) -> None:
    axes.set_xlabel(AXIS_LABELS[x])
    if x in {"keys", "bins", "rate"} and len(places) > 1:
        axes.set_xscale("log", base=2)
        axes.set_xticks(places, [theme.thousands()(place, 0) for place in places])
        axes.minorticks_off()


def draw_over_axis(experiment: StoredExperiment, value: Value, label: str) -> Any:
    """Draws medians over rounds of a time in ms over the swept axis, with the range of rounds; None without a point."""
    panels = panels_of(experiment)
    found = [curves(experiment, panel, value) for panel in panels]
    if not any(found):
        return None
    columns = min(len(panels), _COLUMNS_MAX)
    figure, grid = theme.grid_of(len(panels), height=3.2, width=max(7.0, 3.6 * columns), columns=columns, sharey=True)
    handles: dict[str, Any] = {}
    for axes, panel, lines in zip(grid, panels, found, strict=True):
        for line in lines:
            handles.setdefault(line.mechanism, _line(axes, line))
        _scale_x(axes, experiment.grid["x"], list(dict.fromkeys(p for line in lines for p in line.x)))
        if panel:
            axes.set_title(", ".join(f"{axis} {at}" for axis, at in panel.items()))
    theme.log_ms(grid[0].yaxis, [y for lines in found for line in lines for y in (*line.low, *line.high)])
    grid[0].set_ylabel(label)
    theme.legend(figure, list(handles.values()), list(handles), columns=4)
    return figure


def _line(axes: Any, line: Curve) -> Any:
    colour, marker = theme.mechanism_colour(line.mechanism), theme.mechanism_marker(line.mechanism)
    below = [m - low for m, low in zip(line.middle, line.low, strict=True)]
    above = [high - m for m, high in zip(line.middle, line.high, strict=True)]
    dash = (0, (4, 2)) if line.mechanism == "none" else "-"
    axes.errorbar(line.x, line.middle, yerr=[below, above], color=colour, linewidth=0, elinewidth=1, capsize=2)
    (drawn,) = axes.plot(
        line.x, line.middle, color=colour, marker=marker, markersize=6, linewidth=1.3, linestyle=dash,
        markeredgecolor=theme.LIGHT["paper"],
    )  # fmt: skip
    return drawn


def metric_of(name: str) -> tuple[Metric, Value]:
    """Returns a metric and its value of a run."""
    metric = by_name(name)
    return metric, lambda run: metric.value(run.entry)
