"""Where the time of a record goes in real time, from its scheduled time to the acknowledgement of its result."""

from typing import Any

import numpy as np

from plots import theme
from plots.data import StoredExperiment, StoredRun
from plots.figure import Figure

# part in result.json -> (label, colour), in the order in which a record passes
_PARTS = {
    "to_router": ("Kafka to router", "grey"),
    "route": ("route", "orange"),
    "shuffle": ("shuffle", "pink"),
    "wait": ("wait for the turn", "sky"),
    "apply": ("apply", "blue"),
    "commit": ("commit", "green"),
    "log": ("changelog", "olive"),
    "send": ("send", "vermilion"),
}
_REST = ("not told apart", "shade")
_WHEN = ("steady", "migrating")


def _bars(runs: list[StoredRun]) -> list[tuple[str, list[float], float | None]]:
    """Returns (label, milliseconds of each part and of the rest, turns per second): means over rounds."""
    out = []
    for name in dict.fromkeys(run.mechanism for run in runs):
        for when in _WHEN:
            entries = [run.entry.get("way") or {} for run in runs if run.mechanism == name]
            breakdowns = [entry[when] for entry in entries if entry.get(when)]
            if breakdowns:
                parts = [float(np.mean([one["mean_ms"].get(part, 0.0) for one in breakdowns])) for part in _PARTS]
                rest = [max(0.0, (one["latency_ms"] or 0.0) - sum(one["mean_ms"].values())) for one in breakdowns]
                turns = [one["turns_per_s"] for one in breakdowns if one["turns_per_s"] is not None]
                out.append(
                    (f"{name}  {when}", [*parts, float(np.mean(rest))], float(np.mean(turns)) if turns else None)
                )
    return out


def _draw(experiment: StoredExperiment) -> Any:
    """Draws one bar for steady and one for migrating ticks of each mechanism."""
    bars = _bars([run for run in experiment.comparable() if run.real_time])
    if not bars:
        return None
    figure, (axes,) = theme.grid_of(1, height=0.36 * len(bars) + 0.6)
    place, left, handles = np.arange(len(bars), dtype=np.float64), np.zeros(len(bars)), []
    for number, (_, colour) in enumerate([*_PARTS.values(), _REST]):
        widths = np.array([parts[number] for _, parts, _ in bars])
        handles.append(axes.barh(place, widths, left=left, height=0.72, color=theme.LIGHT[colour]))
        left += widths
    for y, (total, (_, _, turns)) in enumerate(zip(left, bars, strict=True)):
        told = f"{total:.1f} ms" + ("" if turns is None else f", {turns:,.0f} turns/s")
        axes.annotate(told, (total, y), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_yticks(place, [label for label, _, _ in bars])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlim(0, max(float(left.max()), 1e-3) * 1.25)
    axes.set_xlabel("mean milliseconds of a record")
    theme.legend(figure, handles, [label for label, _ in [*_PARTS.values(), _REST]], columns=5)
    return figure


FIGURE = Figure(
    name="latency_breakdown",
    title="Latency breakdown in real time",
    caption=(
        "Mean time that a record spends in each step from its scheduled time to the acknowledgement of its "
        "result, steady and while a migration was under way, over all rounds after warm-up, with the turns that all "
        "workers take in a second."
    ),
    order=42,
    draw=_draw,
)
