"""The trend of measures over commits, one small figure per mechanism."""

from collections.abc import Mapping, Sequence
from typing import Any

from plots import theme
from plots.figure import element, rendered

__all__ = ["draw_trend"]

_SHOWN = {"epoch_p50_ms": "blue", "steady_p99_ms": "green", "migrating_p99_ms": "vermilion"}


def draw_trend(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns an SVG element per mechanism: medians in ms by commit, in the order of the lines of history.jsonl."""
    mechanisms = dict.fromkeys(name for line in lines for name, value in line.items() if isinstance(value, dict))
    return [_figure(name, [line for line in lines if name in line]) for name in mechanisms]


def _figure(mechanism: str, lines: Sequence[Mapping[str, Any]]) -> str:
    with theme.style():
        figure, (axes,) = theme.grid_of(1, height=2.4, width=9.0)
        axes.set_title(mechanism)
        for measure, hue in _SHOWN.items():
            points = [(i, line[mechanism][measure]) for i, line in enumerate(lines) if measure in line[mechanism]]
            if points:
                axes.plot(*zip(*points, strict=True), color=theme.LIGHT[hue], marker="o", label=measure)
        axes.set_xticks(range(len(lines)), [line["commit"][:8] for line in lines], rotation=60, fontsize=7)
        axes.set_ylabel("ms")
        axes.set_ylim(bottom=0)
        theme.legend(figure, *axes.get_legend_handles_labels())
        return element(rendered(figure, ("svg",))["svg"])
