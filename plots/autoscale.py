"""The figures of the autoscaling suite, drawn from autoscale.json alone."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from plots import theme
from plots.figure import save, where_measured

_COLUMNS = 3
_MARKERS = "osD^vP*X"


def write_figures(result: Mapping[str, Any], folder: Path) -> list[Path]:
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
