"""Colours and style of every figure: colour-blind safe, one fixed colour per mechanism, light and dark."""

import re
import textwrap
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
from numpy.typing import NDArray

from plots.data import StoredExperiment, StoredRun
from plots.metrics import at

__all__ = [
    "DARK",
    "LIGHT",
    "dark",
    "few_ticks",
    "finish",
    "grid_of",
    "hue",
    "legend",
    "log_ms",
    "mechanism_colour",
    "mechanism_marker",
    "panel_title",
    "shade_migrations",
    "style",
    "thin",
    "thousands",
    "ticks_within",
    "time_axis",
    "time_marks",
    "with_variables",
]

# Figures are drawn in the light colours. A dark one, or one with CSS variables, is the same SVG with each colour
# replaced by its name's other value; so every value of LIGHT occurs once. Hues: Okabe and Ito, then Paul Tol's muted,
# and a brown.
LIGHT = {
    "paper": "#fffffe",
    "ink": "#1d2430",
    "muted": "#5b6472",
    "grid": "#e3e6eb",
    "shade": "#f1ecd9",
    "grey": "#7f8793",
    "blue": "#0072b2",
    "orange": "#e69f00",
    "green": "#009e73",
    "vermilion": "#d55e00",
    "pink": "#cc79a7",
    "sky": "#56b4e9",
    "wine": "#882255",
    "olive": "#999933",
    "indigo": "#332288",
    "forest": "#117733",
    "brown": "#8c564b",
}
DARK = {
    "paper": "#14181f",
    "ink": "#e8ebf0",
    "muted": "#a3acba",
    "grid": "#2c333e",
    "shade": "#3b3521",
    "grey": "#9aa3b0",
    "blue": "#4aa8e0",
    "orange": "#f0b63a",
    "green": "#2fc49a",
    "vermilion": "#f07f33",
    "pink": "#e09cc2",
    "sky": "#86cdf5",
    "wine": "#c9588f",
    "olive": "#bcbc5c",
    "indigo": "#8d7fe0",
    "forest": "#4fae6e",
    "brown": "#c99484",
}
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p", "h", "<", ">", "d")
_TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 1e6)
_HUES = tuple(name for name in LIGHT if name not in {"paper", "ink", "muted", "grid", "shade", "grey"})
# Where a name has a fixed hue: the first whose words occur in the mechanism's name. Any other takes one by checksum.
_BY_WORD = (
    ("none", "grey"),
    ("native", "brown"),
    ("restart", "vermilion"),
    ("all-at-once", "pink"),
    ("fluid", "green"),
    ("batched", "blue"),
    ("meces", "orange"),
    ("rhino", "sky"),
    ("partial-pause", "wine"),
    ("order-unaware", "olive"),
    ("replicated", "indigo"),
    ("external", "forest"),
)


def hue(name: str) -> str:
    """Returns the name of a mechanism's colour in LIGHT and DARK."""
    found = next((colour for word, colour in _BY_WORD if word in name), None)
    return found or _HUES[zlib.crc32(name.encode()) % len(_HUES)]


def mechanism_colour(name: str) -> str:
    """Returns the colour of a mechanism, derived from its name alone: the same in every figure and experiment."""
    return LIGHT[hue(name)]


def mechanism_marker(name: str) -> str:
    """Returns the marker of a mechanism, which identifies it without colour."""
    hues = ("grey", *_HUES)
    return _MARKERS[hues.index(hue(name)) % len(_MARKERS)]


@contextmanager
def style() -> Iterator[None]:
    """Sets fonts, axes and grid for the figures drawn inside; text stays text in SVG files."""
    settings = {
        **sns.axes_style("ticks"),
        "figure.facecolor": LIGHT["paper"],
        "savefig.facecolor": LIGHT["paper"],
        "axes.facecolor": LIGHT["paper"],
        "axes.edgecolor": LIGHT["muted"],
        "axes.labelcolor": LIGHT["ink"],
        "axes.titlecolor": LIGHT["ink"],
        "axes.titlesize": 10,
        "axes.titlelocation": "left",
        "axes.labelsize": 9,
        "axes.linewidth": 0.8,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": LIGHT["grid"],
        "grid.linewidth": 0.7,
        "text.color": LIGHT["ink"],
        "xtick.color": LIGHT["muted"],
        "ytick.color": LIGHT["muted"],
        "xtick.labelsize": 8.5,
        "ytick.labelsize": 8.5,
        "legend.frameon": False,
        "legend.fontsize": 8.5,
        "font.family": ["DejaVu Sans"],
        "lines.solid_capstyle": "round",
        "path.simplify": True,
        "svg.fonttype": "none",
        "svg.hashsalt": "rescale-bench",
    }
    with mpl.rc_context(settings):
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


def panel_title(axes: Any, run: StoredRun, *, coloured: bool) -> None:
    """Names the mechanism of a panel, in its colour where the panel's data has it, and the round shown."""
    colour = mechanism_colour(run.mechanism) if coloured else LIGHT["ink"]
    axes.set_title(f"{run.mechanism}", color=colour, fontweight="bold")
    axes.set_title(f"round {run.round}", loc="right", color=LIGHT["muted"], fontsize=8.5)


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


def _recolour(svg: str, value: Callable[[str, str], str]) -> str:
    names = {colour: name for name, colour in LIGHT.items()}
    found = re.compile("|".join(names), re.IGNORECASE)
    return found.sub(lambda match: value(names[match.group().lower()], match.group()), svg)


def dark(svg: str) -> str:
    """Returns a figure's SVG text in the dark colours."""
    return _recolour(svg, lambda name, _: DARK[name])


def with_variables(svg: str) -> str:
    """Returns a figure's SVG text with CSS variables (`--paper`, `--ink`, ...) in place of colours."""
    return _recolour(svg, lambda name, _: f"var(--{name})")


def thin(x: NDArray[np.float64], *ys: NDArray[np.float64], most: int = 800) -> list[NDArray[np.float64]]:
    """Returns at most `most` points: the first x and the highest y of equal groups, so that no peak is lost."""
    size = -(-len(x) // most) if len(x) else 1
    starts = np.arange(0, len(x), size)
    if size == 1:
        return [x, *ys]
    return [x[starts], *(np.fmax.reduceat(y, starts) for y in ys)]
