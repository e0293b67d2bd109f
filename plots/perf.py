"""The figures of the performance suite, drawn from perf.json alone."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from plots import theme
from plots.render import rendered, replace

__all__ = ["write_figures"]

_HUES = ("blue", "orange", "green", "vermilion", "pink", "sky", "wine", "olive")
_MIB = 1 << 20
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
                figure = _DRAWN.get(name, _growth(name))(curves)
                figure.supxlabel(_identity(result), x=0.01, ha="left", fontsize=6.8, color=theme.LIGHT["muted"])
                path = folder / f"{part}-{name.replace(' ', '-')}.svg"
                for kind, content in rendered(figure, ("svg", "png")).items():
                    replace(path.with_suffix(f".{kind}"), content)
            out.setdefault(part, []).append(path)
    return out


def _identity(result: Mapping[str, Any]) -> str:
    here = result["environment"]
    quick = "quick form, " if result["quick"] else ""
    return f"{quick}commit {here['commit'][:12]}{' (changed)' if here['dirty'] else ''}, {here['cores']} cores"


def _axes(title: str, x: str) -> tuple[Any, Any]:
    figure, (axes,) = theme.grid_of(1, height=3.0, width=7.0)
    axes.set_title(title)
    axes.set_xlabel(x)
    axes.set_xscale("log")
    return figure, axes


def _restart(curves: Mapping[str, Line]) -> Any:
    figure, axes = _axes("A rescale costs the latest record this much more than usual", "keys")
    for name, points in curves.items():
        colour = theme.mechanism_colour(name)
        axes.plot(*zip(*points, strict=True), color=colour, marker=theme.mechanism_marker(name), label=name)
    theme.log_ms(axes.yaxis, [value for points in curves.values() for _, value in points])
    axes.set_ylabel("excess latency")
    theme.legend(figure, *axes.get_legend_handles_labels())
    return figure


def _migratable(curves: Mapping[str, Line]) -> Any:
    figure, axes = _axes("This runtime over a twin that cannot move state", "bins")
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
    theme.legend(figure, *axes.get_legend_handles_labels())
    return figure


def _memory(curves: Mapping[str, Line]) -> Any:
    figure, axes = _axes("Memory of each role", "keys")
    _draw_lines(axes, {role: [[x, size / _MIB] for x, size in points] for role, points in curves.items()})
    axes.set_ylabel("highest resident set, MiB")
    theme.legend(figure, *axes.get_legend_handles_labels())
    return figure


def _draw_lines(axes: Any, curves: Mapping[str, Line]) -> None:
    """Draws the values known, from 0 upwards."""
    for place, (name, points) in enumerate(curves.items()):
        known = [(x, value) for x, value in points if value is not None]
        axes.plot(*zip(*known, strict=True), color=theme.LIGHT[_HUES[place]], marker="o", label=name)
    axes.set_ylim(bottom=0)


def _growth(axis: str) -> Callable[[Mapping[str, Line]], Any]:
    def draw(curves: Mapping[str, Line]) -> Any:
        figure, axes = _axes(f"Times against {axis}", axis)
        if any(x == 0 for points in curves.values() for x, _ in points):
            axes.set_xscale("symlog", linthresh=10)
        _draw_lines(axes, curves)
        axes.set_ylabel("ms")
        theme.legend(figure, *axes.get_legend_handles_labels())
        return figure

    return draw


_DRAWN: Mapping[str, Callable[[Mapping[str, Line]], Any]] = {
    "restart": _restart,
    "migratable": _migratable,
    "memory": _memory,
}
