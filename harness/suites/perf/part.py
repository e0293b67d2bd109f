"""What a part of the performance suite gives: tables, checks against stated bounds, and curves to draw."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

__all__ = ["Check", "Part", "PartResult", "Scale", "Spread", "Table"]

_T = TypeVar("_T")


@dataclass(frozen=True)
class Scale:
    """How large a measurement is: in full, or so small that it only shows that the part works."""

    quick: bool = False

    def pick(self, full: _T, quick: _T) -> _T:
        """Returns the value of this scale."""
        return quick if self.quick else full


@dataclass(frozen=True)
class Spread:
    """Values of one measure, one per round: their median and range."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median over the rounds."""
        return float(np.median(self.values))

    def text(self, digits: int = 0) -> str:
        """Returns the median, with the range where there is more than one round."""
        shown = f"{self.median:,.{digits}f}"
        if len(self.values) < 2:
            return shown
        return f"{shown} ({min(self.values):,.{digits}f} to {max(self.values):,.{digits}f})"

    def __str__(self) -> str:
        """Returns the text of a measure of one variant over that of another, with the number of rounds."""
        return f"{self.median:.3f} ({min(self.values):.3f} to {max(self.values):.3f}, {len(self.values)} rounds)"


@dataclass(frozen=True)
class Table:
    """A table of a part: cells are text already, `note` says what its reader must know."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True)
class Check:
    """A figure against its bound: at most it, or at least it."""

    sentence: str
    value: float
    bound: float
    at_most: bool

    @property
    def holds(self) -> bool:
        """Whether the figure keeps its bound."""
        return self.value <= self.bound if self.at_most else self.value >= self.bound


@dataclass(frozen=True)
class PartResult:
    """What a part has found; `curves` are what `plots.perf` draws: by figure, by line, lists of points."""

    tables: Sequence[Table]
    checks: Sequence[Check] = ()
    curves: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Returns the findings, each check with whether it holds."""
        return {**asdict(self), "checks": [{**asdict(check), "holds": check.holds} for check in self.checks]}


@dataclass(frozen=True)
class Part:
    """A part of the suite: `measure(folder, scale)` measures what is not in the folder yet and returns its findings."""

    name: str
    title: str
    minutes: float
    measure: Callable[[Path, Scale], PartResult]
