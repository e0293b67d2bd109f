"""Writes report.html of a result folder, from its files alone; the page makes no request and opens offline."""

import json
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from harness.report.comparison import COLUMNS, comparison
from harness.report.conclusions import conclusions
from harness.report.timelines import timelines
from plots import theme
from plots.data import Experiment, Run, load
from plots.figures import all_figures, svg_of
from plots.metrics import DASH, METRICS, at, show

__all__ = ["write_report"]

_COLUMNS = tuple(metric for metric in METRICS if metric.in_table)
_TEMPLATE = "template.html.j2"
_LINKED = (
    "run.json",
    "intervals.hlog",
    "epochs.hlog",
    "epochs.jsonl",
    "plan.jsonl",
    "events.jsonl",
    "memory.jsonl",
    "cells.jsonl",
    "generator.json",
    "oracle.json",
)


def write_report(result_folder: Path, *, drawn: bool = False) -> Path:
    """Writes the report of a result folder and returns its path; with `drawn`, from the figures just written there.

    Raises:
        ValueError: result.json or a file of a run cannot be read.
    """
    experiment = load(result_folder)
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    text = environment.get_template(_TEMPLATE).render(**_content(experiment, drawn=drawn))
    path = result_folder / "report.html"
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
    return path


def _content(experiment: Experiment, *, drawn: bool) -> dict[str, Any]:
    runs = experiment.ordered()
    return {
        "name": experiment.name,
        "folder": experiment.folder.name,
        "identity": experiment.identity(),
        "total": len(runs),
        "valid": sum(run.entry.get("verdict") == "valid" for run in runs),
        "comparable": len(experiment.comparable()),
        "conclusions": [(line, Markup(f"var(--{theme.hue(line.mechanism)})")) for line in conclusions(experiment)],
        "compared": _compared(experiment),
        "compared_metrics": COLUMNS,
        "swept": experiment.is_sweep,
        "metrics": _COLUMNS,
        "rows": [_row(experiment, run) for run in runs],
        "withheld": [(run.label, run.why_withheld(), _reasons(run)) for run in experiment.withheld()],
        "figures": _figures(experiment, drawn=drawn),
        "environment": _flat(experiment.result.get("environment") or {}),
        "parameters": _flat(experiment.result.get("experiment") or {}),
        "files": [(run.label, _links(experiment, run)) for run in runs],
        "timelines": _embedded(timelines(experiment)),
        "timelines_script": Markup((Path(__file__).parent / "timelines.js").read_text(encoding="utf-8")),
        "light": theme.LIGHT,
        "dark": theme.DARK,
    }


def _embedded(data: list[dict[str, Any]]) -> Markup:
    """Returns data as JSON that no text in it can end the page's script with; nothing for no data."""
    return Markup(json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")) if data else Markup("")


def _compared(experiment: Experiment) -> list[dict[str, Any]]:
    """Returns the lines of the comparison; none where there is only one."""
    lines = comparison(experiment)
    return [
        {
            "mechanism": line.mechanism,
            "hue": Markup(f"var(--{theme.hue(line.mechanism)})"),
            "cell": line.cell,
            "compared": line.compared,
            "runs": line.runs,
            "cells": [(line.values[metric.name], line.shown(metric)) for metric in COLUMNS],
        }
        for line in (lines if len(lines) > 1 else [])
    ]


def _row(experiment: Experiment, run: Run) -> dict[str, Any]:
    """Returns a line of the table; a withheld run shows no figures."""
    withheld = bool(run.why_withheld())
    values = [None if withheld else metric.value(run.entry) for metric in _COLUMNS]
    return {
        "mechanism": run.mechanism,
        "hue": Markup(f"var(--{theme.hue(run.mechanism)})"),
        "round": run.round,
        "cell": experiment.cell_label(run.cell),
        "verdict": str(run.entry.get("verdict", "unknown")),
        "load": str(run.entry.get("load", "unknown")),
        "withheld": withheld,
        "cells": [(value, show(value, metric.unit)) for value, metric in zip(values, _COLUMNS, strict=True)],
    }


def _reasons(run: Run) -> list[str]:
    """Returns what the oracle says of a run: its reasons, and how many results were lost, doubled, wrong."""
    path = run.folder / "oracle.json"
    oracle = json.loads(path.read_text()) if path.exists() else {}
    counts = [(name, at(run.entry, name)) for name in ("lost", "doubled", "wrong", "out_of_order")]
    found = [f"{number:,.0f} {name.replace('_', ' ')}" for name, number in counts if number]
    lag = at(run.entry, "generator", "max_lag_ms")
    late = [f"the generator was up to {show(lag, 'ms')} late"] if run.entry.get("load") == "late" and lag else []
    return [*(str(reason) for reason in oracle.get("reasons") or []), *found, *late]


def _figures(experiment: Experiment, *, drawn: bool) -> list[tuple[str, str, str, Markup]]:
    """Returns (name, title, caption, SVG element) of each figure that has something to show."""
    return [
        (figure.name, figure.title, figure.caption, Markup(_inline(svg, figure.name)))
        for figure in all_figures(sweep=experiment.is_sweep)
        if figure.in_report and (svg := svg_of(figure, experiment, drawn=drawn)) is not None
    ]


def _inline(svg: str, name: str) -> str:
    """Makes an SVG fit into a page: colours from the page, its width, ids of its own, no namespaces."""
    head, body = svg.split(">", 1)
    head = re.sub(r' (width|height|xmlns(:\w+)?)="[^"]*"', "", head)
    text = theme.with_variables(f"{head}>{body}").replace("xlink:href", "href")
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r"url\(#", f"url(#{name}-", text)
    return re.sub(r'href="#', f'href="#{name}-', text)


def _flat(values: dict[str, Any], before: str = "") -> list[tuple[str, str]]:
    """Returns nested values as (dotted name, text) pairs."""
    out: list[tuple[str, str]] = []
    for name, value in values.items():
        if isinstance(value, dict):
            out += _flat(value, f"{before}{name}.")
        elif isinstance(value, list):
            out.append((before + name, ", ".join(map(str, value)) or DASH))
        elif isinstance(value, bool):
            out.append((before + name, "yes" if value else "no"))
        else:
            number = isinstance(value, int) and name not in {"seed", "schema"}
            out.append((before + name, DASH if value is None else f"{value:,}" if number else str(value)))
    return out


def _links(experiment: Experiment, run: Run) -> list[tuple[str, str]]:
    """Returns (file name, relative address) of the files that the run left."""
    if not run.entry.get("folder"):
        return []
    base = quote(run.folder.relative_to(experiment.folder).as_posix())
    return [(name, f"{base}/{name}") for name in _LINKED if (run.folder / name).exists()]
