"""Table of every run's verdict, withheld runs included."""

from typing import Any

from plots import theme
from plots.data import StoredExperiment, StoredRun
from plots.figure import Figure
from plots.metrics import at, show

_HEADINGS = ("mechanism", "round", "verdict", "load", "machine", "lost", "doubled", "wrong", "shown in figures")
_WIDTHS = (0.26, 0.08, 0.11, 0.08, 0.1, 0.07, 0.09, 0.07, 0.14)
_COLOURS = {"valid": "forest", "invalid": "vermilion", "unknown": "vermilion", "late": "vermilion", "busy": "vermilion"}


def _row(run: StoredRun) -> list[str]:
    counts = [show(at(run.entry, name), "count") for name in ("lost", "doubled", "wrong")]
    words = [run.mechanism, str(run.round), run.verdict, run.load_kept, run.machine]
    return [*words, *counts, "no" if run.why_withheld() else "yes"]


def _draw(experiment: StoredExperiment) -> Any:
    """Draws the table; a word that withholds a run has its own colour."""
    rows = [_row(run) for run in experiment.ordered()]
    if not rows:
        return None
    figure, (axes,) = theme.grid_of(1, height=0.27 * (len(rows) + 1))
    axes.axis("off")
    table = axes.table(
        cellText=rows, colLabels=_HEADINGS, colWidths=_WIDTHS, cellLoc="left", colLoc="left", bbox=(0, 0, 1, 1)
    )
    table.auto_set_font_size(False)
    table.set_fontsize(9)
    for (line, _), cell in table.get_celld().items():
        cell.set(facecolor="none", edgecolor=theme.LIGHT["grid"], linewidth=0.8)
        cell.visible_edges = "B"
        text = cell.get_text().get_text()
        colour = theme.LIGHT["muted"] if line == 0 else theme.LIGHT[_COLOURS.get(text, "ink")]
        cell.set_text_props(color=colour, fontweight="bold" if line == 0 or text in _COLOURS else "normal")
    return figure


FIGURE = Figure(
    name="verdicts",
    title="Verdicts",
    caption=(
        "What the oracle found when it recomputed every result from the input, and which runs the other figures show."
    ),
    order=90,
    draw=_draw,
    in_report=False,
)
