"""The figures of a sweep: curves over the swept axis, one panel per combination of the other axes."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from plots import theme
from plots.data import StoredExperiment, StoredRun
from plots.figure import Figure
from plots.metrics import by_name

_AXIS_LABELS = {
    "keys": "keys",
    "bins": "bins",
    "rate": "records per second",
    "skew": "exponent of the Zipf law (0: uniform)",
    "policy": "placement policy",
}
_TIED = {"bins": ("keys",), "keys": ("bins",)}  # may vary together with the axis; then they make no panel
_MIGRATING, _STEADY = by_name("latency_migrating_max_ms"), by_name("latency_steady_max_ms")
_P99, _DURATION = by_name("latency_steady_p99_ms"), by_name("migration_s")
_COLUMNS_MAX = 3

Value = Callable[[StoredRun], float | None]


def peak(run: StoredRun) -> float | None:
    """Returns the highest latency while migrating; without a migration that of steady time, as the control."""
    return (_MIGRATING if run.entry.get("migrations") else _STEADY).value(run.entry)


@dataclass(frozen=True, slots=True)
class _Curve:
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


def curves(experiment: StoredExperiment, panel: dict[str, Any], value: Value) -> list[_Curve]:
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
            out.append(_Curve(name, at, *columns))
    return out


def _scale_x(axes: Any, x: str, places: list[Any]) -> None:
    axes.set_xlabel(_AXIS_LABELS[x])
    if x in {"keys", "bins", "rate"} and len(places) > 1:
        axes.set_xscale("log", base=2)
        axes.set_xticks(places, [theme.thousands()(place, 0) for place in places])
        axes.minorticks_off()


def _draw_over_axis(experiment: StoredExperiment, *, value: Value, label: str) -> Any:
    """Draws medians over rounds of a time in ms over the swept axis, with the range of rounds; None without a point."""
    panels = panels_of(experiment)
    drawn = [curves(experiment, panel, value) for panel in panels]
    if not any(drawn):
        return None
    columns = min(len(panels), _COLUMNS_MAX)
    figure, grid = theme.grid_of(len(panels), height=3.2, width=max(7.0, 3.6 * columns), columns=columns, sharey=True)
    handles: dict[str, Any] = {}
    for axes, panel, lines in zip(grid, panels, drawn, strict=True):
        for line in lines:
            handles.setdefault(line.mechanism, _line(axes, line))
        _scale_x(axes, experiment.grid["x"], list(dict.fromkeys(p for line in lines for p in line.x)))
        if panel:
            axes.set_title(", ".join(f"{axis} {at}" for axis, at in panel.items()))
    theme.log_ms(grid[0].yaxis, [y for lines in drawn for line in lines for y in (*line.low, *line.high)])
    grid[0].set_ylabel(label)
    theme.legend(figure, list(handles.values()), list(handles), columns=4)
    return figure


def _line(axes: Any, line: _Curve) -> Any:
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


def _duration_ms(run: StoredRun) -> float | None:
    seconds = _DURATION.value(run.entry)
    return None if seconds is None else max(seconds * 1000, 1.0)


def _trade_ms(run: StoredRun) -> float | None:
    return _duration_ms(run) if _MIGRATING.value(run.entry) else None


def _trade_height(run: StoredRun) -> float | None:
    return _MIGRATING.value(run.entry) if _trade_ms(run) is not None else None


def _path(axes: Any, over: _Curve, up: _Curve) -> Any:
    colour, marker = theme.mechanism_colour(up.mechanism), theme.mechanism_marker(up.mechanism)
    style = {"color": colour, "marker": marker, "markersize": 6, "markeredgecolor": theme.LIGHT["paper"]}
    (drawn,) = axes.plot(over.middle, up.middle, linewidth=1.1, **style)
    for end in (0, -1) if len(up.x) > 1 else (0,):
        at = theme.thousands()(up.x[end], 0) if isinstance(up.x[end], int | float) else str(up.x[end])
        place = (over.middle[end], up.middle[end])
        axes.annotate(at, place, xytext=(5, 4 if end else -11), textcoords="offset points", fontsize=7.5, color=colour)
    return drawn


def _draw_trade(experiment: StoredExperiment) -> Any:
    """Draws a path per mechanism on log axes; its ends say where on the swept axis they are."""
    panels = panels_of(experiment)
    points = [
        list(zip(curves(experiment, p, _trade_ms), curves(experiment, p, _trade_height), strict=True)) for p in panels
    ]
    if not any(points):
        return None
    figure, grid = theme.grid_of(len(panels), height=3.6, width=7.0)
    handles: dict[str, Any] = {}
    for axes, panel, pairs in zip(grid, panels, points, strict=True):
        for over, up in pairs:
            handles.setdefault(up.mechanism, _path(axes, over, up))
        theme.log_ms(axes.xaxis, [x for over, _ in pairs for x in over.middle])
        theme.log_ms(axes.yaxis, [y for _, up in pairs for y in up.middle])
        axes.set_xlabel("duration of the longest migration")
        axes.set_ylabel("highest latency while migrating")
        axes.set_title(", ".join(f"{axis} {at}" for axis, at in panel.items()))
    figure.supylabel(f"numbers at the ends: {_AXIS_LABELS[experiment.grid['x']]}", fontsize=8)
    theme.legend(figure, list(handles.values()), list(handles), columns=4)
    return figure


FIGURES = (
    Figure(
        name="sweep_peak",
        title="Highest latency",
        caption=(
            "How late the latest record was while state moved, over the swept axis: medians and ranges of the rounds; "
            "a mechanism that never migrates shows the highest latency of its steady time."
        ),
        order=10,
        draw=partial(_draw_over_axis, value=peak, label="highest latency while migrating"),
        of_sweep=True,
    ),
    Figure(
        name="sweep_duration",
        title="Duration",
        caption="How long the longest migration took from its first to its last moved bin, over the swept axis.",
        order=20,
        draw=partial(_draw_over_axis, value=_duration_ms, label="duration of the longest migration"),
        of_sweep=True,
    ),
    Figure(
        name="sweep_trade",
        title="Highest latency against duration",
        caption=(
            "What the swept axis does to both at once (lower left is better): each mechanism's medians, joined in the "
            "order of the axis, with its lowest and highest value at the ends."
        ),
        order=30,
        draw=_draw_trade,
        of_sweep=True,
    ),
    Figure(
        name="sweep_steady",
        title="Steady latency",
        caption=(
            "What the swept axis costs with no migration under way: 99 % of the records were done within this time."
        ),
        order=40,
        draw=partial(_draw_over_axis, value=lambda run: _P99.value(run.entry), label="steady latency, p99"),
        of_sweep=True,
    ),
)
