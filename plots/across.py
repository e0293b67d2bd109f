"""Figures over many experiments: each mark is a mechanism of one experiment, and carries its values as text."""

import html
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import matplotlib as mpl

from plots import theme
from plots.data import StoredExperiment
from plots.figure import element, rendered
from plots.marks import Group, Mark, Value, groups_of, marks_of
from plots.metrics import Metric, by_name, show
from plots.sweep import peak

_WIDTH = 4.8  # inches: narrow, so that a phone's screen shows the text large enough to read
_LINE, _TEXT, _GAP = 0.1, 0.13, 0.12  # inches: between the marks of a group, of a line of its label, around both
_LEGEND = 0.17  # inches: a line of the legend
_LABEL_MOST = 72  # characters in a line of a group's label
_DURATION, _PEAK, _RATIO = by_name("migration_s"), by_name("latency_migrating_max_ms"), by_name("peak_ratio")
_P50, _P99, _MOVED = by_name("latency_steady_p50_ms"), by_name("latency_steady_p99_ms"), by_name("moved_bytes")
_RATIO_TICKS = (0.2, 0.5, 1, 1.5, 2, 3, 5, 10, 20, 50, 100, 200, 500)
_BYTES_TICKS = tuple(1024**power * step for power in range(4) for step in (1, 4, 16, 64, 256))
_TICKS_MOST = 7


@dataclass(slots=True)
class _Tips:
    """What the marks of a drawing say; a mark is found again in the SVG by the id that `add` gives it."""

    texts: list[str] = field(default_factory=list)

    def add(self, text: str) -> str:
        """Returns the id of the next mark, which says `text`."""
        self.texts.append(text)
        return f"mark-{len(self.texts) - 1}"

    def into(self, svg: str) -> str:
        """Returns the SVG with each mark's text as its title, which browsers show without a script."""

        def titled(found: re.Match[str]) -> str:
            text = html.escape(self.texts[int(found["number"])])
            return f'{found[0][:-1]} class="mark"><title>{text}</title>'

        return re.sub(r'<g id="mark-(?P<number>\d+)">', titled, svg)


@dataclass(frozen=True, slots=True)
class _AcrossFigure:
    """One figure over many experiments.

    Attributes:
        name: its id in the page.
        title: heading.
        caption: one sentence that says what the figure shows.
        draw: draws the groups inside `theme.style()`, noting each mark's text; None if nothing is to show.
    """

    name: str
    title: str
    caption: str
    draw: Callable[[list[Group], _Tips], Any]


def svg_across(figure: _AcrossFigure, experiments: list[StoredExperiment]) -> str | None:
    """Returns the figure's SVG element in the light colours, its marks titled; None if it has nothing to show."""
    tips = _Tips()
    with theme.style():
        drawn = figure.draw(groups_of(experiments), tips)
        if drawn is None:
            return None
        drawn.supxlabel(_foot(experiments), x=0.01, ha="left", fontsize=6.4, color=theme.LIGHT["muted"])
        svg = rendered(drawn, ("svg",))["svg"]
    return tips.into(element(svg))


def _foot(experiments: list[StoredExperiment]) -> str:
    runs = sum(len(experiment.comparable()) for experiment in experiments)
    commits = dict.fromkeys(experiment.commit[:8] for experiment in experiments)
    shown = ", ".join(list(commits)[:5]) + (", …" if len(commits) > 5 else "")
    return f"{runs} runs of {len(experiments)} experiments; commits {shown}"


def _legend_columns(names: list[str]) -> int:
    return max(1, int(_WIDTH / (0.5 + 0.072 * max(map(len, names), default=0))))


def _legend_height(names: list[str]) -> float:
    return _LEGEND * -(-len(names) // _legend_columns(names))


def _legend(figure: Any, names: list[str]) -> None:
    handles = [
        mpl.lines.Line2D([], [], linewidth=0, markersize=5.5, marker=marker, color=colour)
        for marker, colour in ((theme.mechanism_marker(name), theme.mechanism_colour(name)) for name in names)
    ]
    theme.legend(figure, handles, names, columns=_legend_columns(names))


def _dot(axes: Any, x: float, y: float, name: str, gid: str) -> None:
    colour, marker = theme.mechanism_colour(name), theme.mechanism_marker(name)
    axes.plot(
        [x], [y], marker=marker, markersize=6, color=colour, markeredgecolor=theme.LIGHT["paper"], linewidth=0,
        zorder=4, gid=gid,
    )  # fmt: skip


def _span(axes: Any, xs: tuple[float, float], ys: tuple[float, float], name: str) -> None:
    axes.plot(xs, ys, color=theme.mechanism_colour(name), linewidth=1.1, alpha=0.7, zorder=3)


def _log_axis(axis: Any, metric: Metric, values: list[float]) -> None:
    """Makes an axis logarithmic, with ticks of the metric's unit."""
    if metric.unit in {"ms", "s"}:
        theme.log_ms(axis, [value * (1000 if metric.unit == "s" else 1) for value in values])
        return
    low, high = min(values) / 1.3, max(values) * 1.3
    ticks = theme.ticks_within(_BYTES_TICKS if metric.unit == "B" else _RATIO_TICKS, low, high)
    axis.axes.set_xscale("log")
    axis.set_major_locator(mpl.ticker.FixedLocator(ticks[:: 1 + len(ticks) // _TICKS_MOST]))
    axis.set_minor_locator(mpl.ticker.NullLocator())
    axis.set_major_formatter(mpl.ticker.FuncFormatter(lambda value, _place: show(value, metric.unit)))
    axis.axes.set_xlim(low, high)


def _rows(
    groups: list[Group], tips: _Tips, *, metric: Metric, value: Value, label: str, upto: Value | None = None
) -> Any:
    """Draws a row per group and in it a mark per mechanism at its median, a line over its rounds (or to `upto`)."""
    panels = [(group, marks) for group in groups if (marks := marks_of(group, value, upto))]
    if not panels:
        return None
    texts = [textwrap.wrap(group.label, _LABEL_MOST) for group, _ in panels]
    tops = [0.0]  # inches from the upper edge to each group's
    for text, (_, marks) in zip(texts, panels, strict=True):
        tops.append(tops[-1] + _TEXT * len(text) + _LINE * len(marks) + _GAP)
    names = list(dict.fromkeys(mark.mechanism for _, marks in panels for mark in marks))
    above = _legend_height(names)
    figure, (axes,) = theme.grid_of(1, height=tops[-1] + above, width=_WIDTH)
    factor = 1000 if metric.unit == "s" else 1
    for top, text, (group, marks) in zip(tops, texts, panels, strict=False):
        axes.text(0, top + 0.03, "\n".join(text), transform=axes.get_yaxis_transform(), va="top", fontsize=7.5)
        axes.axhline(top, color=theme.LIGHT["grid"], linewidth=0.8)
        for place, mark in enumerate(marks):
            y = top + _TEXT * len(text) + _LINE * (place + 1)
            _span(axes, (mark.low * factor, mark.high * factor), (y, y), mark.mechanism)
            told = mark.describe(metric, _P99 if upto else None)
            _dot(axes, mark.middle * factor, y, mark.mechanism, tips.add(f"{mark.mechanism}, {group.label}: {told}"))
    axes.set_ylim(tops[-1], 0)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    _log_axis(axes.xaxis, metric, [x for _, marks in panels for mark in marks for x in (mark.low, mark.high)])
    if metric is _RATIO:
        axes.axvline(1, color=theme.LIGHT["muted"], linewidth=0.9, linestyle=(0, (4, 2)))
    axes.set_xlabel(label)
    _legend(figure, names)
    return figure


def _trade(groups: list[Group], tips: _Tips) -> Any:
    """Draws highest latency over duration, a mark for each mechanism of a group at its medians."""
    points: list[tuple[Group, Mark, Mark]] = []
    for group in groups:
        heights = {mark.mechanism: mark for mark in marks_of(group, lambda run: _PEAK.value(run.entry))}
        durations = marks_of(group, lambda run: _DURATION.value(run.entry))
        points += [(group, mark, heights[mark.mechanism]) for mark in durations if mark.mechanism in heights]
    if not points:
        return None
    names = list(dict.fromkeys(up.mechanism for _, _, up in points))
    above = _legend_height(names)
    figure, (axes,) = theme.grid_of(1, height=3.0 + above, width=_WIDTH)
    for group, over, up in points:
        told = f"highest latency {up.describe(_PEAK)}; duration {over.describe(_DURATION)}"
        gid = tips.add(f"{up.mechanism}, {group.label}: {told}")
        _dot(axes, over.middle * 1000, up.middle, up.mechanism, gid)
    theme.log_ms(axes.xaxis, [over.middle * 1000 for _, over, _ in points])
    theme.log_ms(axes.yaxis, [up.middle for _, _, up in points])
    axes.set_xlabel("duration of the longest migration")
    axes.set_ylabel("highest latency while migrating")
    _legend(figure, names)
    return figure


def _of(metric: Metric, label: str) -> Callable[[list[Group], _Tips], Any]:
    return partial(_rows, metric=metric, value=lambda run: metric.value(run.entry), label=label)


ACROSS = (
    _AcrossFigure(
        "peak_ratio",
        "Peak ratio",
        "How far a migration raised the highest latency over that of equally long steady windows of the same run "
        "(dashed: not at all), which is the number that runs of different loads and machines share.",
        _of(_RATIO, "highest latency while migrating over that of steady windows"),
    ),
    _AcrossFigure(
        "peak",
        "Highest latency",
        "How late the latest record was while migrating, or in steady time where nothing migrated: medians over "
        "rounds, with lines from the lowest to the highest.",
        partial(_rows, metric=_PEAK, value=peak, label="highest latency"),
    ),
    _AcrossFigure(
        "duration",
        "Duration",
        "How long the longest migration of a run took from the first to the last moved bin: medians over rounds, "
        "with lines from the shortest to the longest.",
        _of(_DURATION, "duration of the longest migration"),
    ),
    _AcrossFigure(
        "moved",
        "Bytes moved",
        "How many bytes of state the migrations of a run pulled; a mechanism that pulled none has no mark.",
        _of(_MOVED, "bytes of state pulled"),
    ),
    _AcrossFigure(
        "steady",
        "Steady latency",
        "Within which time half of the records were done while nothing migrated (the mark), and 99 % of them (the "
        "end of its line).",
        partial(
            _rows,
            metric=_P50,
            value=lambda run: _P50.value(run.entry),
            upto=lambda run: _P99.value(run.entry),
            label="latency with no migration under way",
        ),
    ),
    _AcrossFigure(
        "trade",
        "Highest latency against duration",
        "How long a migration took and how late the latest record was meanwhile, each mechanism of each experiment "
        "at its medians; lower left is better.",
        _trade,
    ),
)
