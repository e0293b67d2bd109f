"""What the pages share: templates, tables, badges, and figures that take their colours from the page."""

import base64
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from numpy.typing import NDArray

from plots import theme
from plots.data import StoredExperiment, StoredRun
from plots.metrics import Metric, saturated, show

_HERE = Path(__file__).parent
_MACHINE = {"busy": "late", "quiet": "met"}  # classes of the page's style
MACHINE_MEANING = (
    "Whether other work took more than 10 % of the run's CPU time away: quiet or busy; saturated where less than 10 % "
    "of the CPU time was idle."
)


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
    words = [(run.verdict, run.verdict), (run.load_kept, run.load_kept), _machine(run)]
    return [Cell(str(run.round), run.round), *(Cell.of_word(*pair) for pair in words)]


def _machine(run: StoredRun) -> tuple[str, str]:
    """Returns what the machine was during a run, and the class of the page's style."""
    if saturated(run.entry):
        return f"{run.machine}, saturated", "late"
    return run.machine, _MACHINE.get(run.machine, "")


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


_BINS_MOST = 4096  # a replay of more would make the page too large, and its squares too small to see
Line = dict[str, Any]


def timelines(experiment: StoredExperiment) -> list[dict[str, Any]]:
    """Returns, for one comparable run of each mechanism, what the page draws; nothing for a sweep.

    Times are in seconds since the load's begin, latencies and epochs in ms.
    """
    if experiment.is_sweep:
        return []
    return [_timeline(run) for run in experiment.typical() if run.entry.get("timeline")]


def _timeline(run: StoredRun) -> dict[str, Any]:
    rows = run.entry["timeline"]
    begins = run.seconds([line["begin_us"] for line in run.epochs])
    return {
        "name": run.mechanism,
        "hue": theme.hue(run.mechanism),
        "unit": "epoch",
        "migrations": [[round(begin, 3), round(end, 3)] for begin, end in run.migrations()],
        **{name: [round(row[name], 3) for row in rows] for name in ("at_s", "p50", "p99", "max")},
        "epoch_s": [round(float(at), 3) for at in begins],
        "epoch_ms": [round(line["ms"]["total"], 1) for line in run.epochs],
        "queued": [int(line.get("queued", 0)) for line in run.epochs],
        "moved_bytes": [int(line["moved_bytes"]) for line in run.epochs],
        "replay": replay_of([line["epoch"] for line in run.epochs], _plans(run)),
    }


def _plans(run: StoredRun) -> dict[int, NDArray[np.int64]]:
    path = run.folder / "plan.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    plans: list[Line] = [json.loads(line) for line in lines if line.endswith("\n")]
    return {plan["epoch"]: np.frombuffer(base64.b64decode(plan["routing"]), "<u2").astype(np.int64) for plan in plans}


def replay_of(epochs: list[int], routing: dict[int, NDArray[np.int64]]) -> dict[str, Any] | None:
    """Returns the first routing and its changes as [place of an epoch, bin, worker, bin, worker, ...]; None if unknown.

    Args:
        epochs: numbers of the epochs shown, in order.
        routing: the routing of each epoch, shape (bins,).
    """
    known = [(place, routing[number]) for place, number in enumerate(epochs) if number in routing]
    if not known or len(known[0][1]) > _BINS_MOST:
        return None
    first = before = known[0][1]
    changes = []
    for place, now in known[1:]:
        moved = np.flatnonzero(now != before)
        if len(moved):
            changes.append([place, *np.stack([moved, now[moved]], axis=1).reshape(-1).tolist()])
        before = now
    workers = 1 + max(int(now.max()) for _, now in known)
    return {"workers": workers, "first": first.tolist(), "changes": changes}
