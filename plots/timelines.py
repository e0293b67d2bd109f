"""Latency, throughput, state and memory over time, one panel for each mechanism."""

from typing import Any

import numpy as np
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from plots import theme
from plots.data import StoredExperiment, StoredRun
from plots.figure import Figure
from plots.metrics import at

_MIB = 1024**2
# latency of an interval -> width and dash of its line
_LATENCIES: dict[str, tuple[float, Any]] = {"max": (0.8, "-"), "p99": (1.1, (0, (4, 1.5))), "p50": (1.9, "-")}
_DONE_AND_DUE: dict[str, tuple[float, Any]] = {"done": (1.3, "-"), "due": (0.9, (0, (2, 2)))}
_HIGHEST = 3.0  # times the highest rate of the load; the burst after a standstill would flatten everything else
# role in memory.jsonl -> (label, colour)
_ROLES = {
    "jvm": ("Spark JVM", "blue"),
    "executor": ("executors, sum", "sky"),
    "broker": ("broker", "orange"),
    "worker": ("workers, sum", "green"),
    "worker_max": ("largest worker", "forest"),
    "driver": ("driver", "pink"),
    "redis": ("Redis", "vermilion"),
    "generator": ("generator", "grey"),
}
_KINDS: dict[str, Any] = {"rss": "-", "anon": (0, (1, 1.5))}


def _legend(figure: Any, lines: dict[str, tuple[float, Any]]) -> None:
    """Says what the lines of each width and dash are, and what is marked behind them."""
    handles = [Line2D([], [], color=theme.LIGHT["ink"], linewidth=w, linestyle=dash) for w, dash in lines.values()]
    marks, labels = theme.time_marks()
    theme.legend(figure, [*handles, *marks], [*lines, *labels])


def _latency_panel(axes: Any, run: StoredRun) -> list[float]:
    rows, colour = run.timeline, theme.mechanism_colour(run.mechanism)
    x, most, p99, p50 = theme.thin(rows["at_s"], *(rows[name] for name in _LATENCIES))
    axes.fill_between(x, p50, p99, color=colour, alpha=0.28, linewidth=0)
    axes.fill_between(x, p99, most, color=colour, alpha=0.12, linewidth=0)
    for y, (width, dash) in zip((most, p99, p50), _LATENCIES.values(), strict=True):
        axes.plot(x, y, color=colour, linewidth=width, linestyle=dash)
    return [float(v) for v in (*most, *p50)]


def _draw_latency(experiment: StoredExperiment) -> Any:
    """Draws p50, p99 and highest latency of each 250 ms of scheduled time on a log axis."""
    runs = [run for run in experiment.typical() if len(run.timeline["at_s"])]
    if not runs:
        return None
    figure, panels, found = theme.over_time(runs, _latency_panel, height=1.55, label="latency from scheduled time")
    theme.log_ms(panels[0].yaxis, [value for values in found for value in values])
    _legend(figure, _LATENCIES)
    return figure


def _per_second(run: StoredRun) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the ends of full seconds and the records done in each; the last, broken second is left out."""
    times, records = run.done
    kept = times >= 0
    counts = np.bincount(times[kept].astype(np.int64), weights=records[kept]).astype(np.float64)
    whole = max(len(counts) - 1, 1)
    return np.arange(1, whole + 1, dtype=np.float64), counts[:whole]


def scheduled_per_second(run: StoredRun) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the ends of full seconds and the records due in each; one stretch for a load that has but a rate."""
    if totals := run.load.get("due_by_second"):
        return np.arange(len(totals) + 1, dtype=np.float64)[1:], np.diff(np.asarray(totals, np.float64), prepend=0.0)
    rate = at(run.load, "rate")
    return (np.array([run.end_s]), np.array([rate])) if rate else (np.empty(0), np.empty(0))


def _cut(axes: Any, run: StoredRun, top: float) -> None:
    """Says how high a peak is that the panel does not show in full."""
    x, y = _per_second(run)
    if y.max() > top:
        place = (float(x[int(y.argmax())]), top)
        axes.annotate(f"▴ {y.max():,.0f}", place, xytext=(3, -3), textcoords="offset points", va="top", fontsize=8)


def _throughput_panel(axes: Any, run: StoredRun) -> float:
    x, y = theme.thin(*_per_second(run))
    x, y = np.append(0.0, x), np.append(y[0], y)
    colour = theme.mechanism_colour(run.mechanism)
    axes.fill_between(x, y, step="pre", color=colour, alpha=0.2, linewidth=0)
    axes.step(x, y, where="pre", color=colour, linewidth=1.3)
    ends, records = scheduled_per_second(run)
    if len(records):
        steps = (np.append(0.0, ends), np.append(records[0], records))
        axes.step(*steps, where="pre", color=theme.LIGHT["ink"], linewidth=0.9, linestyle=(0, (2, 2)))
    return float(y.max())


def _draw_throughput(experiment: StoredExperiment) -> Any:
    """Draws records done per second, with the rate of the load for comparison."""
    runs = [run for run in experiment.typical() if len(run.done[0])]
    if not runs:
        return None
    figure, panels, found = theme.over_time(runs, _throughput_panel, height=1.2, label="records done per second")
    rates = [float(records.max()) for run in runs if len(records := scheduled_per_second(run)[1])]
    top = min(max(*found, *rates, 1.0) * 1.08, _HIGHEST * max(rates, default=max(found)))
    for axes, run in zip(panels, runs, strict=True):
        _cut(axes, run, top)
    theme.upwards(panels[0], top)
    _legend(figure, _DONE_AND_DUE)
    return figure


def _state_panel(axes: Any, run: StoredRun) -> None:
    x = run.seconds([row["begin_us"] for row in run.epochs])
    size = np.array([row.get("state_bytes", 0) / _MIB for row in run.epochs])
    axes.plot(*theme.thin(x, size), color=theme.mechanism_colour(run.mechanism), linewidth=1.3)
    axes.set_ylim(0, max(float(size.max()), 1e-3) * 1.1)
    axes.yaxis.set_major_locator(theme.few_ticks())


def _draw_state(experiment: StoredExperiment) -> Any:
    """Draws the bytes of all bins' state at the begin of each epoch."""
    runs = [run for run in experiment.typical() if any(row.get("state_bytes") for row in run.epochs)]
    if not runs:
        return None
    figure, _, _ = theme.over_time(runs, _state_panel, height=1.3, label="state, MiB", shared=False)
    theme.legend(figure, *theme.time_marks())
    return figure


def _memory_panel(axes: Any, run: StoredRun) -> float:
    x = run.seconds([row["at_us"] for row in run.memory])
    top = 0.0
    for role, (_, colour) in _ROLES.items():
        for kind, dash in _KINDS.items():
            values = [((row.get("roles") or {}).get(role) or {}).get(kind) for row in run.memory]
            y = np.array([np.nan if v is None else v / _MIB for v in values], dtype=np.float64)
            if np.isfinite(y).any():
                width = 1.3 if kind == "rss" else 1.1
                axes.plot(*theme.thin(x, y), color=theme.LIGHT[colour], linestyle=dash, linewidth=width)
                top = max(top, float(np.nanmax(y)))
    return top


def _draw_memory(experiment: StoredExperiment) -> Any:
    """Draws resident memory by role, and the part of it that is not mapped files."""
    runs = [run for run in experiment.typical() if run.memory]
    if not runs:
        return None
    figure, panels, found = theme.over_time(runs, _memory_panel, height=1.55, label="memory, MiB", coloured=False)
    theme.upwards(panels[0], max(*found, 1.0) * 1.08)
    present = {role for run in runs for row in run.memory for role in row.get("roles") or {}}
    roles = [value for role, value in _ROLES.items() if role in present]
    theme.legend(
        figure,
        [Line2D([], [], color=theme.LIGHT[colour], linewidth=1.6) for _, colour in roles]
        + [Line2D([], [], color=theme.LIGHT["ink"], linewidth=1.2, linestyle=dash) for dash in _KINDS.values()],
        [label for label, _ in roles] + ["resident", "without mapped files"],
    )
    return figure


FIGURES = (
    Figure(
        name="latency_timeline",
        title="Latency over time",
        caption=(
            "Latency of all records scheduled within each 250 ms, from the moment each record was due to the "
            "moment its result was handed over; of several rounds the one with the middle peak is shown."
        ),
        order=10,
        draw=_draw_latency,
    ),
    Figure(
        name="throughput",
        title="Throughput",
        caption=(
            "Records whose results were handed over in each second, beside the records that were due in it: a dip "
            "followed by a peak is work that had to wait."
        ),
        order=50,
        draw=_draw_throughput,
    ),
    Figure(
        name="state_timeline",
        title="State",
        caption=(
            "Bytes of the state of all bins over time: windows that end and timers that fire must give back what they "
            "took."
        ),
        order=58,
        draw=_draw_state,
    ),
    Figure(
        name="memory_timeline",
        title="Memory",
        caption=(
            "Resident memory of each role's processes over time; dotted is the part that is not mapped files, "
            "which the operating system cannot simply drop."
        ),
        order=60,
        draw=_draw_memory,
    ),
)
