"""Where time goes: an epoch's by phase, and in real time a record's from its scheduled time to the acknowledgement."""

from typing import Any

import numpy as np

from plots import theme
from plots.data import StoredExperiment, StoredRun
from plots.figure import Figure

# phase in epochs.jsonl -> (label, colour); their sum is the epoch's total
_PHASES = {
    "between": ("between epochs", "grey"),
    "plan": ("plan", "orange"),
    "build": ("build job", "pink"),
    "job": ("Spark job", "blue"),
    "observe": ("observe", "green"),
}


def _phase_ms(rows: list[dict[str, Any]], phase: str) -> list[float]:
    """Returns a phase's milliseconds of each epoch, 0 where the epoch log has none."""
    return [float((row.get("ms") or {}).get(phase) or 0.0) for row in rows]


def _bars(runs: list[StoredRun]) -> list[tuple[str, str, list[float]]]:
    """Returns (mechanism, steady or migrating, mean milliseconds of each phase), rounds together."""
    out: list[tuple[str, str, list[float]]] = []
    for name in dict.fromkeys(run.mechanism for run in runs):
        rows = [row for run in runs if run.mechanism == name for row in run.settled_epochs]
        for when, migrating in (("steady", False), ("migrating", True)):
            chosen = [row for row in rows if bool(row.get("migrating")) == migrating]
            if chosen:
                out.append((name, when, [float(np.mean(_phase_ms(chosen, phase))) for phase in _PHASES]))
    return out


def _label_totals(axes: Any, bars: list[tuple[str, str, list[float]]]) -> float:
    """Writes each bar's total; returns where the axis ends: a bar of several times the usual length is cut off."""
    totals = [sum(means) for _, _, means in bars]
    widest = min(max(totals) * 1.12, float(np.median(totals)) * 4) or 1.0
    for y, (total, (_, _, means)) in enumerate(zip(totals, bars, strict=True)):
        inside = total * 1.08 > widest
        label, most = list(_PHASES.values())[int(np.argmax(means))][0], max(means)
        axes.annotate(
            f"{total:,.0f} ms" + (f", of which {label} {most:,.0f} ms  ▸" if inside else ""),
            (widest if inside else total, y),
            xytext=(-4 if inside else 4, 0),
            textcoords="offset points",
            ha="right" if inside else "left",
            va="center",
            fontsize=8,
            fontweight="bold" if inside else "normal",
            color=theme.LIGHT["paper" if inside else "ink"],
        )
    return widest


def _draw_means(experiment: StoredExperiment) -> Any:
    """Draws one bar for steady and one for migrating epochs of each mechanism."""
    bars = _bars([run for run in experiment.comparable() if not run.real_time])
    if not bars:
        return None
    figure, (axes,) = theme.grid_of(1, height=0.36 * len(bars) + 0.6)
    place = np.arange(len(bars), dtype=np.float64)
    left = np.zeros(len(bars))
    handles = []
    for number, (_, colour) in enumerate(_PHASES.values()):
        widths = np.array([means[number] for _, _, means in bars])
        handles.append(axes.barh(place, widths, left=left, height=0.72, color=theme.LIGHT[colour]))
        left += widths
    widest = _label_totals(axes, bars)
    axes.set_yticks(place, [f"{name}  {when}" for name, when, _ in bars])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlim(0, widest)
    axes.set_xlabel("mean milliseconds of an epoch")
    axes.xaxis.set_major_formatter(theme.thousands())
    theme.legend(figure, handles, [label for label, _ in _PHASES.values()])
    return figure


def _panel(axes: Any, run: StoredRun) -> list[Any]:
    begins = run.seconds([row["begin_us"] for row in run.epochs])
    x, *ys = theme.thin(begins, *(np.array(_phase_ms(run.epochs, phase)) for phase in _PHASES))
    colours = [theme.LIGHT[colour] for _, colour in _PHASES.values()]
    return list(axes.stackplot(x, ys, colors=colours, linewidth=0, step="post"))


def _draw_timeline(experiment: StoredExperiment) -> Any:
    """Draws the milliseconds of each phase, stacked, at the time the epoch began."""
    runs = [run for run in experiment.typical() if run.epochs and not run.real_time]
    if not runs:
        return None
    label = "milliseconds of an epoch (own scale in each panel)"
    figure, panels, handles = theme.over_time(runs, _panel, height=1.4, label=label, shared=False, coloured=False)
    for axes in panels:
        theme.upwards(axes)
    marks, labels = theme.time_marks()
    theme.legend(figure, [*handles[0], *marks], [*(label for label, _ in _PHASES.values()), *labels])
    return figure


FIGURES = (
    Figure(
        name="epoch_phases",
        title="Phases of an epoch",
        caption=(
            "Mean time that an epoch spends in each phase, steady and while a migration was under way, over all "
            "rounds after warm-up; a bar far longer than most is cut off at the edge, and says so."
        ),
        order=40,
        draw=_draw_means,
    ),
    Figure(
        name="epoch_timeline",
        title="Epochs over time",
        caption=(
            "The time each epoch took, split into its phases, at the time it began: where a migration makes "
            "epochs longer, and in which phase."
        ),
        order=45,
        draw=_draw_timeline,
    ),
)


# part in result.json -> (label, colour), in the order in which a record passes
_PARTS = {
    "to_router": ("Kafka to router", "grey"),
    "route": ("route", "orange"),
    "to_worker": ("router to worker", "pink"),
    "wait": ("wait for the commit", "sky"),
    "apply": ("apply", "blue"),
    "commit": ("commit", "green"),
    "log": ("changelog", "olive"),
    "send": ("send", "vermilion"),
}
_REST = ("not told apart", "shade")
_WHEN = ("steady", "migrating")


def _step_bars(runs: list[StoredRun]) -> list[tuple[str, list[float], float | None]]:
    """Returns (label, milliseconds of each part and of the rest, commits per second): means over rounds."""
    out = []
    for name in dict.fromkeys(run.mechanism for run in runs):
        for when in _WHEN:
            entries = [run.entry.get("way") or {} for run in runs if run.mechanism == name]
            breakdowns = [entry[when] for entry in entries if entry.get(when)]
            if breakdowns:
                parts = [float(np.mean([one["mean_ms"].get(part, 0.0) for one in breakdowns])) for part in _PARTS]
                rest = [max(0.0, (one["latency_ms"] or 0.0) - sum(one["mean_ms"].values())) for one in breakdowns]
                commits = [one["turns_per_s"] for one in breakdowns if one["turns_per_s"] is not None]
                out.append(
                    (f"{name}  {when}", [*parts, float(np.mean(rest))], float(np.mean(commits)) if commits else None)
                )
    return out


def _draw(experiment: StoredExperiment) -> Any:
    """Draws one bar for steady and one for migrating ticks of each mechanism."""
    bars = _step_bars([run for run in experiment.comparable() if run.real_time])
    if not bars:
        return None
    figure, (axes,) = theme.grid_of(1, height=0.36 * len(bars) + 0.6)
    place, left, handles = np.arange(len(bars), dtype=np.float64), np.zeros(len(bars)), []
    for number, (_, colour) in enumerate([*_PARTS.values(), _REST]):
        widths = np.array([parts[number] for _, parts, _ in bars])
        handles.append(axes.barh(place, widths, left=left, height=0.72, color=theme.LIGHT[colour]))
        left += widths
    for y, (total, (_, _, commits)) in enumerate(zip(left, bars, strict=True)):
        told = f"{total:.1f} ms" + ("" if commits is None else f", {commits:,.0f} commits/s")
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
        "result, steady and while a migration was under way, over all rounds after warm-up, with the commits that all "
        "workers take in a second."
    ),
    order=42,
    draw=_draw,
)
