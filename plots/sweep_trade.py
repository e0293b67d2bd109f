"""Sweep: highest latency against duration, the points of a mechanism joined in the order of the swept axis."""

from typing import Any

from plots import theme
from plots.data import StoredExperiment, StoredRun
from plots.figure import Figure
from plots.metrics import by_name
from plots.sweep import AXIS_LABELS, Curve, curves, panels_of

__all__ = ["FIGURE"]

_DURATION, _PEAK = by_name("migration_s"), by_name("latency_migrating_max_ms")


def _duration_ms(run: StoredRun) -> float | None:
    seconds = _DURATION.value(run.entry)
    return None if seconds is None or not _PEAK.value(run.entry) else max(seconds * 1000, 1.0)


def _height(run: StoredRun) -> float | None:
    return _PEAK.value(run.entry) if _duration_ms(run) is not None else None


def _path(axes: Any, over: Curve, up: Curve) -> Any:
    colour, marker = theme.mechanism_colour(up.mechanism), theme.mechanism_marker(up.mechanism)
    style = {"color": colour, "marker": marker, "markersize": 6, "markeredgecolor": theme.LIGHT["paper"]}
    (drawn,) = axes.plot(over.middle, up.middle, linewidth=1.1, **style)
    for end in (0, -1) if len(up.x) > 1 else (0,):
        at = theme.thousands()(up.x[end], 0) if isinstance(up.x[end], int | float) else str(up.x[end])
        place = (over.middle[end], up.middle[end])
        axes.annotate(at, place, xytext=(5, 4 if end else -11), textcoords="offset points", fontsize=7.5, color=colour)
    return drawn


def _draw(experiment: StoredExperiment) -> Any:
    """Draws a path per mechanism on log axes; its ends say where on the swept axis they are."""
    panels = panels_of(experiment)
    found = [
        list(zip(curves(experiment, p, _duration_ms), curves(experiment, p, _height), strict=True)) for p in panels
    ]
    if not any(found):
        return None
    figure, grid = theme.grid_of(len(panels), height=3.6, width=7.0)
    handles: dict[str, Any] = {}
    for axes, panel, pairs in zip(grid, panels, found, strict=True):
        for over, up in pairs:
            handles.setdefault(up.mechanism, _path(axes, over, up))
        theme.log_ms(axes.xaxis, [x for over, _ in pairs for x in over.middle])
        theme.log_ms(axes.yaxis, [y for _, up in pairs for y in up.middle])
        axes.set_xlabel("duration of the longest migration")
        axes.set_ylabel("highest latency while migrating")
        axes.set_title(", ".join(f"{axis} {at}" for axis, at in panel.items()))
    figure.supylabel(f"numbers at the ends: {AXIS_LABELS[experiment.grid['x']]}", fontsize=8)
    theme.legend(figure, list(handles.values()), list(handles), columns=4)
    return figure


FIGURE = Figure(
    name="sweep_trade",
    title="Highest latency against duration",
    caption=(
        "What the swept axis does to both at once (lower left is better): each mechanism's medians, joined in the "
        "order of the axis, with its lowest and highest value at the ends."
    ),
    order=30,
    draw=_draw,
    of_sweep=True,
)
