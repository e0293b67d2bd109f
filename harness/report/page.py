"""What the pages share: templates, tables, badges, and figures that take their colours from the page."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from plots import theme
from plots.data import StoredRun
from plots.metrics import Metric, show

__all__ = [
    "MACHINE_MEANING",
    "Cell",
    "Column",
    "hue",
    "inline",
    "judged_cells",
    "metric_cells",
    "render",
    "script",
]

_HERE = Path(__file__).parent
_MACHINE = {"busy": "late", "quiet": "met"}  # classes of the page's style
MACHINE_MEANING = "Whether other work took more than 10 % of the run's CPU time away: quiet or busy."


@dataclass(frozen=True, slots=True)
class Column:
    """A table's column: its heading, what it means, whether lower or higher is better, and whether it holds words."""

    label: str
    meaning: str = ""
    better: str | None = None
    words: bool = False

    @classmethod
    def of(cls, metric: Metric, label: str = "") -> "Column":
        """Returns a metric's column, with another heading if one is given."""
        return cls(label or metric.label, metric.meaning, metric.better)


@dataclass(frozen=True, slots=True)
class Cell:
    """A table's cell: the text shown, what it is sorted by (empty: unknown), its class and hue."""

    shown: str
    value: str | float = ""
    kind: str = ""
    dot: Markup | None = None

    @classmethod
    def of_number(cls, number: float | None, metric: Metric) -> "Cell":
        """Returns the cell of a metric's value."""
        return cls(show(number, metric.unit), "" if number is None else number)

    @classmethod
    def of_mechanism(cls, mechanism: str, value: str | float) -> "Cell":
        """Returns the cell of a mechanism's name, with its dot."""
        return cls(mechanism, value, "text name", hue(mechanism))

    @classmethod
    def of_word(cls, word: str, kind: str = "", value: str | float | None = None) -> "Cell":
        """Returns the cell of a word, sorted by it unless by something else."""
        return cls(word, word if value is None else value, f"text {kind}".strip())


def judged_cells(run: StoredRun) -> list[Cell]:
    """Returns the cells of a run's round, verdict, load and machine."""
    words = [(run.verdict, run.verdict), (run.load_kept, run.load_kept), (run.machine, _MACHINE.get(run.machine, ""))]
    return [Cell(str(run.round), run.round), *(Cell.of_word(*pair) for pair in words)]


def metric_cells(
    run: StoredRun, metrics: tuple[Metric, ...], value: Callable[[StoredRun, Metric], float | None]
) -> list[Cell]:
    """Returns a run's numbers; a withheld run shows none."""
    values = [None if run.why_withheld() else value(run, metric) for metric in metrics]
    return [Cell.of_number(number, metric) for number, metric in zip(values, metrics, strict=True)]


def hue(mechanism: str) -> Markup:
    """Returns a mechanism's colour as the page's variable."""
    return Markup(f"var(--{theme.hue(mechanism)})")


def script(name: str) -> Markup:
    """Returns the text of a script of this folder."""
    return Markup((_HERE / name).read_text(encoding="utf-8"))


def render(template: str, content: dict[str, Any]) -> str:
    """Returns a page made from a template of this folder."""
    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    shared = {"light": theme.LIGHT, "dark": theme.DARK, "page_script": script("page.js")}
    return environment.get_template(template).render(**shared, **content)


def inline(svg: str, name: str) -> Markup:
    """Makes an SVG fit into a page: colours from the page, its width, ids of its own, no namespaces."""
    head, body = svg.split(">", 1)
    head = re.sub(r' (width|height|xmlns(:\w+)?)="[^"]*"', "", head)
    text = theme.with_variables(f"{head}>{body}").replace("xlink:href", "href")
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r"url\(#", f"url(#{name}-", text)
    return Markup(re.sub(r'href="#', f'href="#{name}-', text))
