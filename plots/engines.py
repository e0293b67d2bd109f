"""The figures of three suites, each drawn from its JSON alone: engines compared, autoscaling, changes of a pipeline."""

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
    """Returns the figures of a result as engines.json holds it, those of which a valid run has a value."""
    rows = [row for row in result["rows"] if row["verdict"] == "valid"]
    peaks = Drawn(
        "peaks",
        "Highest latency in a rescale",
        "A panel per rescale; a mark is a run: the highest latency of a record from the rescale's command on.",
        lambda: _over_keys(rows, "rescale", "peak_ms", "highest latency"),
    )
    steady = Drawn(
        "steady",
        "Steady latency",
        "Percentiles of the latency of records that no rescale touches; a mark is a run.",
        lambda: _steady(rows),
    )
    drawn = {peaks: ["peak_ms"], steady: [*_STEADY]}
    figures = [one for one, names in drawn.items() if any(row[name] is not None for row in rows for name in names)]
    return figures + [_timeline(result["timelines"], load) for load in loads_of(rows)]


def load_of(row: Mapping[str, Any]) -> str:
    """Returns what a row's engine was to do: the number of keys that it counts, or its query; and how records came."""
    what = str(row.get("query") or f"{row['keys']:,} keys")
    return f"{what}, every {row['arrivals_ms']:g} ms" if row.get("arrivals_ms") else what


def loads_of(rows: Rows) -> list[str]:
    """Returns the loads of rows: numbers of keys ascending, then queries, each with the rarest arrivals first."""
    return list(dict.fromkeys(load_of(row) for row in sorted(rows, key=_by_size)))


def _by_size(row: Mapping[str, Any]) -> tuple[int, str, float]:
    return row["keys"], row.get("query") or "", -row.get("arrivals_ms", 0)


def _timeline(timelines: Rows, load: str) -> Drawn:
    here = [line for line in timelines if load_of(line) == load]
    return Drawn(
        f"timeline-{load.replace(',', '').replace(' keys', '').replace(' ', '-')}",
        f"Latency over time, {load}",
        "Highest latency of the records due in each 250 ms; a rescale is under way where the ground is shaded.",
        lambda: _over_time(here),
    )


def write_engine_figures(result: Mapping[str, Any], folder: Path) -> list[tuple[Drawn, bytes]]:
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
        axes.set(title=name)
        handles |= _lines(axes, [row for row in rows if str(row[panel]) == name], value)
    _finish(figure, panels, handles, [row[value] for row in rows if row[value] is not None], label)
    return figure


def _steady(rows: Rows) -> Any:
    figure, panels = theme.grid_of(len(_STEADY), height=3.0, width=9.0, columns=len(_STEADY), sharey=True)
    handles: dict[str, Any] = {}
    for axes, (value, name) in zip(panels, _STEADY.items(), strict=True):
        axes.set(title=name)
        handles |= _lines(axes, rows, value)
    known = [row[value] for row in rows for value in _STEADY if row[value] is not None]
    _finish(figure, panels, handles, known, "steady latency")
    return figure


def _lines(axes: Any, rows: Rows, value: str) -> dict[str, Any]:
    """Draws a line per engine through its runs, over numbers of keys or over queries, and returns handles by name."""
    handles: dict[str, Any] = {}
    queries = sorted({row["query"] for row in rows if row.get("query")})
    if queries:
        axes.set_xticks(range(len(queries)), queries)
        axes.set_xlim(-0.5, len(queries) - 0.5)
    else:
        axes.set_xscale("log")
        axes.set_xlabel("keys")
    for engine in dict.fromkeys(row["engine"] for row in rows):
        own = [row for row in rows if row["engine"] == engine and row[value]]
        points = sorted({(queries.index(row["query"]) if queries else row["keys"], row[value]) for row in own})
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


_COLUMNS = 3
_MARKERS = "osD^vP*X"


def write_autoscale_figures(result: Mapping[str, Any], folder: Path) -> list[Path]:
    """Writes each figure as SVG and PNG and returns the SVG files; nothing without a run that was scored.

    Args:
        result: as autoscale.json holds it.
        folder: is made if it is not there.
    """
    rows = [row for row in result["rows"] if row["score"] and row["verdict"] == "valid"]
    out: list[Path] = []
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in (_FIGURES if rows else {}).items():
        with theme.style():
            figure = draw(result, rows)
            path = folder / f"autoscale-{name}.svg"
            save(figure, _identity(result), path)
        out.append(path)
    return out


def _identity(result: Mapping[str, Any]) -> str:
    suite = result["suite"]
    return f"{suite['mode']}, seed {suite['seed']}, {where_measured(result['environment'])}"


def _trade(result: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Any:
    """Draws seconds above the objective over worker-seconds: a panel per load, a mark per run."""
    loads, policies = _named(rows, "load"), _named(rows, "policy")
    columns = min(len(loads), _COLUMNS)
    figure, panels = theme.grid_of(len(loads), height=3.0, width=max(7.0, 3.6 * columns), columns=columns)
    handles: dict[str, Any] = {}
    for axes, load in zip(panels, loads, strict=True):
        axes.set(title=load, xlabel="worker-seconds", ylabel="s above the objective")
        for row in (row for row in rows if row["load"] == load):
            label = f"{row['policy']}, {row['mechanism']}"
            style = {"color": theme.mechanism_colour(row["mechanism"]), "markersize": 6, "linewidth": 0}
            marker = _MARKERS[policies.index(row["policy"]) % len(_MARKERS)]
            (drawn,) = axes.plot(row["score"]["worker_s"], row["score"]["above_s"], marker=marker, **style)
            handles.setdefault(label, drawn)
        axes.set_ylim(bottom=0)
    theme.legend(figure, list(handles.values()), list(handles), columns=3)
    return figure


def _workers(result: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Any:
    """Draws the workers there were over those needed: a panel per load and policy, a line per run."""
    places = list(dict.fromkeys((row["load"], row["policy"]) for row in rows))
    figure, panels = theme.grid_of(len(places), height=1.9, width=9.0, columns=2)
    handles: dict[str, Any] = {}
    for axes, (load, policy) in zip(panels, places, strict=True):
        at, need = zip(*result["loads"][load], strict=True)
        handles["needed"] = axes.fill_between(at, need, step="mid", color=theme.LIGHT["shade"], linewidth=0)
        for row in (row for row in rows if (row["load"], row["policy"]) == (load, policy)):
            times, workers = zip(*row["workers"], [at[-1], row["workers"][-1][1]], strict=True)
            kept = [(max(t, 0.0), n) for t, n in zip(times, workers, strict=True) if t <= at[-1]]
            colour = theme.mechanism_colour(row["mechanism"])
            (drawn,) = axes.step(*zip(*kept, strict=True), where="post", color=colour, linewidth=1.2)
            handles.setdefault(row["mechanism"], drawn)
        axes.set_title(f"{load}, {policy}", fontsize=8.5)
        axes.set_ylim(bottom=0)
    figure.supylabel("workers", fontsize=8)
    theme.legend(figure, list(handles.values()), list(handles), columns=4)
    return figure


def _named(rows: Sequence[Mapping[str, Any]], name: str) -> list[str]:
    return list(dict.fromkeys(str(row[name]) for row in rows))


_FIGURES: Mapping[str, Callable[[Mapping[str, Any], Sequence[Mapping[str, Any]]], Any]] = {
    "trade": _trade,
    "workers": _workers,
}


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
        save(figure, _identity_of_changes(result), path)
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


def _identity_of_changes(result: Mapping[str, Any]) -> str:
    own, where = result["parameters"]["setting"], where_measured(result["environment"])
    return f"{own['mode']}, {own['keys']:,} keys, {own['rate']:,} records/s, {where}"
