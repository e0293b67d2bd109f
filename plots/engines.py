"""The figures of the comparison of engines, drawn from engines.json alone."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plots import theme
from plots.figure import save, where_measured

_STEADY = {"p50_ms": "p50", "p99_ms": "p99", "p999_ms": "p99.9"}
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Drawn:
    """A figure: its name, its heading, what it shows in one sentence, and a function that draws it."""

    name: str
    title: str
    caption: str
    draw: Callable[[], Any]

    @property
    def file(self) -> str:
        """Its file's name without ending."""
        return f"engines-{self.name}"


def _figures(result: Mapping[str, Any]) -> list[Drawn]:
    """Returns the figures of a result as engines.json holds it; none without a valid run."""
    rows = [row for row in result["rows"] if row["verdict"] == "valid"]
    if not rows:
        return []
    found = [
        Drawn(
            "peaks",
            "Highest latency in a rescale",
            "A panel per rescale; a mark is a run: the highest latency of a record from the rescale's command on.",
            lambda: _over_keys(rows, "rescale", "peak_ms", "highest latency"),
        ),
        Drawn(
            "steady",
            "Steady latency",
            "Percentiles of the latency of records that no rescale touches; a mark is a run.",
            lambda: _steady(rows),
        ),
    ]
    return found + [_timeline(result["timelines"], keys) for keys in sorted({row["keys"] for row in rows})]


def _timeline(timelines: Rows, keys: int) -> Drawn:
    here = [line for line in timelines if line["keys"] == keys]
    return Drawn(
        f"timeline-{keys}",
        f"Latency over time, {keys:,} keys",
        "Highest latency of the records due in each 250 ms; a rescale is under way where the ground is shaded.",
        lambda: _over_time(here),
    )


def write_figures(result: Mapping[str, Any], folder: Path) -> list[tuple[Drawn, bytes]]:
    """Writes each figure as SVG and PNG and returns it with its SVG.

    Args:
        result: as engines.json holds it.
        folder: is made if it is not there.
    """
    out: list[tuple[Drawn, bytes]] = []
    folder.mkdir(parents=True, exist_ok=True)
    for one in _figures(result):
        with theme.style():
            svg = save(one.draw(), where_measured(result["environment"]), folder / f"{one.file}.svg")
        out.append((one, svg))
    return out


def _over_keys(rows: Rows, panel: str, value: str, label: str) -> Any:
    """Draws a value over the number of keys: a panel for each name that the rows have for it."""
    names = list(dict.fromkeys(str(row[panel]) for row in rows if row[value] is not None))
    figure, panels = theme.grid_of(len(names), height=3.0, width=9.0, columns=2, sharey=True)
    handles: dict[str, Any] = {}
    for axes, name in zip(panels, names, strict=True):
        axes.set(title=name, xlabel="keys")
        handles |= _lines(axes, [row for row in rows if str(row[panel]) == name], value)
    _finish(figure, panels, handles, [row[value] for row in rows if row[value] is not None], label)
    return figure


def _steady(rows: Rows) -> Any:
    figure, panels = theme.grid_of(len(_STEADY), height=3.0, width=9.0, columns=len(_STEADY), sharey=True)
    handles: dict[str, Any] = {}
    for axes, (value, name) in zip(panels, _STEADY.items(), strict=True):
        axes.set(title=name, xlabel="keys")
        handles |= _lines(axes, rows, value)
    known = [row[value] for row in rows for value in _STEADY if row[value] is not None]
    _finish(figure, panels, handles, known, "steady latency")
    return figure


def _lines(axes: Any, rows: Rows, value: str) -> dict[str, Any]:
    """Draws a line per engine through its runs and returns handles by name."""
    handles: dict[str, Any] = {}
    axes.set_xscale("log")
    for engine in dict.fromkeys(row["engine"] for row in rows):
        points = sorted({(row["keys"], row[value]) for row in rows if row["engine"] == engine and row[value]})
        if points:
            style = {"color": theme.mechanism_colour(engine), "marker": theme.mechanism_marker(engine)}
            (handles[engine],) = axes.plot(*zip(*points, strict=True), **style, markersize=5)
    return handles


def _finish(figure: Any, panels: Sequence[Any], handles: Mapping[str, Any], values: list[float], label: str) -> None:
    for axes in panels:
        theme.log_ms(axes.yaxis, values)
    panels[0].set_ylabel(label)
    theme.legend(figure, list(handles.values()), list(handles), columns=3)


def _over_time(timelines: Rows) -> Any:
    figure, panels = theme.grid_of(len(timelines), height=1.1, sharex=True, sharey=True)
    values = [value for line in timelines for value in line["max_ms"]]
    for axes, line in zip(panels, timelines, strict=True):
        for begin, end in line["rescales"]:
            axes.axvspan(begin, end, color=theme.LIGHT["shade"], linewidth=0, zorder=0)
        colour = theme.mechanism_colour(line["engine"])
        axes.plot(line["at_s"], line["max_ms"], color=colour, linewidth=1)
        axes.set_title(line["engine"], color=colour, fontweight="bold", fontsize=8.5)
        theme.log_ms(axes.yaxis, values)
    panels[-1].set_xlabel("seconds since the load began")
    figure.supylabel("highest latency", fontsize=9)
    return figure
