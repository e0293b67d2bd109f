"""Colours and style of every figure: colour-blind safe, one fixed colour per mechanism, light and dark."""

import re
import textwrap
import tomllib
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
from numpy.typing import NDArray

from plots.data import StoredExperiment, StoredRun
from plots.metrics import IN_REAL_TIME, at

_FILE = tomllib.loads(Path(__file__).with_name("theme.toml").read_text(encoding="utf-8"))
LIGHT: dict[str, str] = _FILE["light"]
DARK: dict[str, str] = _FILE["dark"]
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p", "h", "<", ">", "d")
_TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 1e6)
_T = TypeVar("_T")
_HUES = tuple(name for name in LIGHT if name not in {"paper", "ink", "muted", "grid", "shade", "grey"})


def hue(name: str) -> str:
    """Returns the name of a mechanism's colour in LIGHT and DARK; by checksum where theme.toml has none for it.

    In real time it is another one, so that a comparison of both modes has two.
    """
    words, real_time = name.removesuffix(IN_REAL_TIME), name.endswith(IN_REAL_TIME)
    if real_time and (fixed := next((str(c) for word, c in _FILE["real_time"].items() if word in words), None)):
        return fixed
    found = next((str(colour) for word, colour in _FILE["by_word"].items() if word in name), None)
    return found or _HUES[zlib.crc32(name.encode()) % len(_HUES)]


def mechanism_colour(name: str) -> str:
    """Returns the colour of a mechanism, derived from its name alone: the same in every figure and experiment."""
    return LIGHT[hue(name)]


def mechanism_marker(name: str) -> str:
    """Returns the marker of a mechanism, which identifies it without colour."""
    hues = ("grey", *_HUES)
    place = hues.index(hue(name.removesuffix(IN_REAL_TIME)))
    return _MARKERS[(place + name.endswith(IN_REAL_TIME) * len(_MARKERS) // 2) % len(_MARKERS)]


@contextmanager
def style() -> Iterator[None]:
    """Sets fonts, axes and grid for the figures drawn inside; text stays text in SVG files."""
    own = {name: LIGHT.get(str(value), value) for name, value in _FILE["settings"].items()}
    with mpl.rc_context({**sns.axes_style("ticks"), **own}):
        yield


def grid_of(
    panels: int, *, height: float = 1.75, width: float = 9.0, columns: int = 1, **shared: Any
) -> tuple[Any, list[Any]]:
    """Returns a figure and its panels, one below the other (or in columns); unused panels are removed."""
    rows = max(1, -(-panels // columns))
    figure, axes = plt.subplots(
        rows, columns, figsize=(width, height * rows + 1.25), squeeze=False, layout="constrained", **shared
    )
    flat = list(axes.ravel())
    for spare in flat[panels:]:
        spare.remove()
    return figure, flat[:panels]


def over_time(
    runs: list[StoredRun],
    draw: Callable[[Any, StoredRun], _T],
    *,
    height: float,
    label: str,
    shared: bool = True,
    coloured: bool = True,
) -> tuple[Any, list[Any], list[_T]]:
    """Returns a figure with a panel per run over the time since its load began, the panels, and what `draw` returned.

    Args:
        runs: one or more.
        draw: draws a run's data into its panel, in front of the migrations.
        height: of a panel, in inches.
        label: of the other axis.
        shared: the panels have one scale.
        coloured: the data has the mechanism's colour, which its name then has too.
    """
    figure, panels = grid_of(len(runs), height=height, sharex=True, sharey=shared)
    drawn = []
    for axes, run in zip(panels, runs, strict=True):
        shade_migrations(axes, run)
        drawn.append(draw(axes, run))
        colour = mechanism_colour(run.mechanism) if coloured else LIGHT["ink"]
        axes.set_title(f"{run.mechanism}", color=colour, fontweight="bold")
        axes.set_title(f"round {run.round}", loc="right", color=LIGHT["muted"], fontsize=8.5)
    time_axis(panels, runs)
    figure.supylabel(label, fontsize=9)
    return figure, panels, drawn


def time_axis(panels: list[Any], runs: list[StoredRun]) -> None:
    """Gives panels that share it a common axis of seconds since the load began."""
    panels[0].set_xlim(0, max([run.end_s for run in runs] + [1.0]))
    panels[-1].set_xlabel("seconds since the load began")


def shade_migrations(axes: Any, run: StoredRun) -> None:
    """Shades the time from each migration's begin to its end, and marks the end of the warm-up."""
    for begin, end in run.migrations():
        axes.axvspan(begin, end, color=LIGHT["shade"], linewidth=0, zorder=0)
    if warm := at(run.entry, "warmup_s"):
        axes.axvline(warm, color=LIGHT["muted"], linewidth=0.9, linestyle=(0, (1, 2)))


def time_marks() -> tuple[list[Any], list[str]]:
    """Returns legend handles and labels of what `shade_migrations` draws."""
    warm = mpl.lines.Line2D([], [], color=LIGHT["muted"], linewidth=0.9, linestyle=(0, (1, 2)))
    return [mpl.patches.Patch(color=LIGHT["shade"]), warm], ["migration under way", "warm-up ends"]


def _ms_label(value: float, _place: int | None = None) -> str:
    if value >= 1000:
        return f"{value / 1000:g} s"
    return f"{value:g} ms" if value >= 1 else f"{value * 1000:g} µs"


def log_ms(axis: Any, values: list[float]) -> None:
    """Makes an axis logarithmic with readable ticks in µs, ms and s that fit the values, given in ms."""
    positive = [v for v in values if v > 0] or [1.0, 10.0]
    low, high = min(positive) / 1.25, max(positive) * 1.25
    wide = high / low > 300
    ticks = ticks_within([t for t in _TICKS if not wide or str(t)[0] == "1"], low, high)
    set_scale, set_lim = ("set_xscale", "set_xlim") if axis.axis_name == "x" else ("set_yscale", "set_ylim")
    getattr(axis.axes, set_scale)("log")
    axis.set_major_locator(mpl.ticker.FixedLocator(ticks))
    axis.set_minor_locator(mpl.ticker.NullLocator())
    axis.set_major_formatter(mpl.ticker.FuncFormatter(_ms_label))
    getattr(axis.axes, set_lim)(low, high)


def ticks_within(wanted: Sequence[float], low: float, high: float) -> list[float]:
    """Returns the ticks that lie in a range; where fewer than two do, round numbers that do."""
    found = [tick for tick in wanted if low <= tick <= high]
    return found if len(found) > 1 else [float(t) for t in few_ticks().tick_values(low, high) if low <= t <= high]


def few_ticks() -> Any:
    """Returns a locator of at most four round ticks from zero."""
    return mpl.ticker.MaxNLocator(nbins=4, steps=[1, 2, 2.5, 5, 10])


def upwards(axes: Any, top: float | None = None) -> None:
    """Makes the upright axis one of few round numbers, from 0 up to `top` or what there is."""
    axes.set_ylim(0, top)
    axes.yaxis.set_major_locator(few_ticks())
    axes.yaxis.set_major_formatter(thousands())


def thousands() -> Any:
    """Returns a formatter of numbers with separated thousands."""
    return mpl.ticker.FuncFormatter(lambda value, _place: f"{value:,g}" if value < 1e6 else f"{value / 1e6:g} M")


def legend(figure: Any, handles: list[Any], labels: list[str], *, columns: int | None = None) -> None:
    """Puts one legend above all panels, outside of the data; in one row, or with at most `columns` entries in a row."""
    if handles:
        figure.legend(
            handles,
            labels,
            loc="outside upper left",
            ncols=min(columns or len(labels), len(labels)),
            handlelength=1.6,
            columnspacing=1.3,
        )


def finish(figure: Any, experiment: StoredExperiment) -> None:
    """Writes the identity of the runs, and which are withheld, in small print at the foot of the figure."""
    lines = [experiment.identity()]
    if experiment.withheld():
        lines.append("withheld: " + "; ".join(f"{run.label} ({run.why_withheld()})" for run in experiment.withheld()))
    width = int(figure.get_size_inches()[0] * 18.5)
    text = "\n".join(textwrap.fill(line, width, break_on_hyphens=False) for line in lines)
    figure.supxlabel(text, x=0.01, ha="left", fontsize=6.8, color=LIGHT["muted"])


def with_variables(svg: str) -> str:
    """Returns a figure's SVG text with CSS variables (`--paper`, `--ink`, ...) in place of colours."""
    names = {colour: name for name, colour in LIGHT.items()}
    found = re.compile("|".join(names), re.IGNORECASE)
    return found.sub(lambda match: f"var(--{names[match.group().lower()]})", svg)


def thin(x: NDArray[np.float64], *ys: NDArray[np.float64], most: int = 800) -> list[NDArray[np.float64]]:
    """Returns at most `most` points: the first x and the highest y of equal groups, so that no peak is lost."""
    size = -(-len(x) // most) if len(x) else 1
    starts = np.arange(0, len(x), size)
    if size == 1:
        return [x, *ys]
    return [x[starts], *(np.fmax.reduceat(y, starts) for y in ys)]
