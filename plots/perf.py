"""The figures of the performance suite, drawn from perf.json alone, and the trend of measures over commits."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from plots import theme
from plots.figure import element, rendered, save, where_measured

_HUES = ("blue", "orange", "green", "vermilion", "pink", "sky", "wine", "olive")
_TREND = {"epoch_p50_ms": "blue", "steady_p99_ms": "green", "migrating_p99_ms": "vermilion"}
Line = list[list[float]]


def write_figures(result: Mapping[str, Any], folder: Path) -> dict[str, list[Path]]:
    """Writes each figure as SVG and PNG and returns the SVG files by part.

    Args:
        result: as perf.json holds it.
        folder: is made if it is not there.
    """
    out: dict[str, list[Path]] = {}
    folder.mkdir(parents=True, exist_ok=True)
    for part, data in result["parts"].items():
        for name, curves in data["curves"].items():
            with theme.style():
                figure, (axes,) = theme.grid_of(1, height=3.0, width=7.0)
                axes.set_xscale("log")
                _DRAWN[name](axes, curves)
                theme.legend(figure, *axes.get_legend_handles_labels())
                path = folder / f"{part}-{name.replace(' ', '-')}.svg"
                save(figure, _identity(result, data), path)
            out.setdefault(part, []).append(path)
    return out


def _identity(result: Mapping[str, Any], part: Mapping[str, Any]) -> str:
    here = part.get("environment", result["environment"])
    return f"{'quick form, ' if result['quick'] else ''}{where_measured(here)}"


def _restart(axes: Any, curves: Mapping[str, Line]) -> None:
    axes.set(title="A rescale costs the latest record this much more than usual", xlabel="keys")
    for name, points in curves.items():
        colour = theme.mechanism_colour(name)
        axes.plot(*zip(*points, strict=True), color=colour, marker=theme.mechanism_marker(name), label=name)
    theme.log_ms(axes.yaxis, [value for points in curves.values() for _, value in points])
    axes.set_ylabel("excess latency")


def _migratable(axes: Any, curves: Mapping[str, Line]) -> None:
    axes.set(title="This runtime over a twin that cannot move state", xlabel="bins")
    for place, (name, points) in enumerate(curves.items()):
        x, median, low, high = (list(column) for column in zip(*points, strict=True))
        beside = [value * (1 + 0.06 * (place - 1.5)) for value in x]
        below = [m - a for m, a in zip(median, low, strict=True)]
        above = [b - m for m, b in zip(median, high, strict=True)]
        hue = theme.LIGHT[_HUES[place]]
        axes.errorbar(beside, median, yerr=(below, above), color=hue, marker="o", capsize=3, linewidth=1, label=name)
    axes.axhline(1.0, color=theme.LIGHT["muted"], linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.set_ylabel("ratio, with 95 % interval")


_DRAWN: Mapping[str, Callable[[Any, Mapping[str, Line]], None]] = {"restart": _restart, "migratable": _migratable}


def draw_trend(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns an SVG element per mechanism: medians in ms by commit, in the order of the lines of history.jsonl."""
    mechanisms = dict.fromkeys(name for line in lines for name, value in line.items() if isinstance(value, dict))
    return [_trend(name, [line for line in lines if name in line]) for name in mechanisms]


def _trend(mechanism: str, lines: Sequence[Mapping[str, Any]]) -> str:
    with theme.style():
        figure, (axes,) = theme.grid_of(1, height=2.4, width=9.0)
        axes.set_title(mechanism)
        for measure, hue in _TREND.items():
            points = [(i, line[mechanism][measure]) for i, line in enumerate(lines) if measure in line[mechanism]]
            if points:
                axes.plot(*zip(*points, strict=True), color=theme.LIGHT[hue], marker="o", label=measure)
        axes.set_xticks(range(len(lines)), [line["commit"][:8] for line in lines], rotation=60, fontsize=7)
        axes.set_ylabel("ms")
        axes.set_ylim(bottom=0)
        theme.legend(figure, *axes.get_legend_handles_labels())
        return element(rendered(figure, ("svg",))["svg"])
