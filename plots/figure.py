"""What a figure module declares: its name, what it shows in one sentence, and the function that draws it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from plots.data import StoredExperiment

__all__ = ["Figure"]


@dataclass(frozen=True, slots=True)
class Figure:
    """One kind of figure; the `FIGURE` or the `FIGURES` of a module of `plots` are found automatically.

    Attributes:
        name: file name without ending.
        title: heading in the report.
        caption: one sentence that says what the figure shows.
        order: place in the report, lower first.
        draw: draws the comparable runs inside `theme.style()`; returns a matplotlib figure, None if nothing is to show.
        in_report: shown in report.html, which has tables of its own.
        of_sweep: shows a sweep; the others show an experiment whose runs of a mechanism are alike.
    """

    name: str
    title: str
    caption: str
    order: int
    draw: Callable[[StoredExperiment], Any]
    in_report: bool = True
    of_sweep: bool = False
