"""The figure of the suite of changes, drawn from changes.json alone: latency around each change, by how it was made."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from plots import theme
from plots.figure import save, where_measured

_HUES = ("blue", "vermilion", "orange", "green")


def write_changes_figure(result: Mapping[str, Any], path: Path) -> bool:
    """Writes the figure as SVG and PNG, and returns whether there was a case to draw: a valid one.

    Args:
        result: as changes.json holds it.
        path: of the SVG file.
    """
    valid = [case for case in result["cases"] if case["verdict"] == "valid" and case.get("timeline")]
    names = list(dict.fromkeys(case["experiment"] for case in valid))
    if not names:
        return False
    with theme.style():
        figure, panels = theme.grid_of(len(names), height=2.4, width=7.0)
        for axes, name in zip(panels, names, strict=False):
            _panel(axes, name, [case for case in valid if case["experiment"] == name])
        save(figure, _identity(result), path)
    return True


def _panel(axes: Any, name: str, cases: Sequence[Mapping[str, Any]]) -> None:
    values = []
    for hue, case in zip(_HUES, cases, strict=False):
        rows = [row for row in case["timeline"] if row["tag"] != "warmup"]
        most = [row["max"] for row in rows]
        colour = theme.LIGHT[hue]
        axes.plot([row["at_s"] - case["begin_s"] for row in rows], most, color=colour, label=case["how"], linewidth=1.1)
        values += most
    axes.axvline(0, color=theme.LIGHT["muted"], linewidth=0.8)
    axes.set(title=f"{name}: highest latency by time of schedule", xlabel="s since the request")
    axes.set_yscale("log")
    theme.log_ms(axes.yaxis, values)
    axes.legend(loc="upper left", fontsize=7)


def _identity(result: Mapping[str, Any]) -> str:
    own, where = result["parameters"]["setting"], where_measured(result["environment"])
    return f"{own['mode']}, {own['keys']:,} keys, {own['rate']:,} records/s, {where}"
