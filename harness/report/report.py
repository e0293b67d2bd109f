"""Writes report.html of a result folder, from its files alone; the page makes no request and opens offline."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from harness.files import write_text
from harness.report.comparison import COLUMNS, comparison, conclusions, outcomes
from harness.report.notes import notes
from harness.report.page import (
    MACHINE_MEANING,
    Cell,
    Column,
    hue,
    inline,
    judged_cells,
    metric_cells,
    render,
    script,
    timelines,
)
from harness.results.summary import write_result
from plots.data import StoredExperiment, StoredRun, load
from plots.figure import all_figures, svg_of, write_all
from plots.metrics import DASH, METRICS, Metric, at, show


@dataclass(frozen=True)
class DecisionLine:
    """A rescale that a policy decided.

    Attributes:
        run: mechanism and round.
        at: seconds since the load's begin.
        change: workers before and after.
        reason: the policy's sentence.
    """

    run: str
    at: str
    change: str
    reason: str


def decisions(experiment: StoredExperiment) -> tuple[int, list[DecisionLine]]:
    """Returns how many decisions were made in all runs, and the lines of those that rescaled."""
    made = [
        (run, event)
        for run in experiment.ordered()
        for event in run.events
        if event["kind"] == "autoscale" and "reason" in event
    ]
    return len(made), [
        DecisionLine(
            run.label,
            f"{float(run.seconds(event['at_us'])):.1f}",
            f"{event['workers']} to {event['wanted']}",
            str(event["reason"]),
        )
        for run, event in made
        if event["wanted"] is not None
    ]


_OF_HOSTS = ("stayed_share", "network_bytes")
_TEMPLATE = "template.html.j2"
_LINKED = (
    "run.json",
    "run.log",
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
    path = result_folder / "report.html"
    write_text(path, render(_TEMPLATE, _content(experiment, drawn=drawn)))
    return path


def _content(experiment: StoredExperiment, *, drawn: bool) -> dict[str, Any]:
    runs = experiment.ordered()
    return {
        "name": experiment.name,
        "folder": experiment.folder.name,
        "identity": experiment.identity(),
        "total": len(runs),
        "valid": sum(run.verdict == "valid" for run in runs),
        "comparable": len(experiment.comparable()),
        "conclusions": [(line, hue(line.mechanism)) for line in conclusions(experiment)],
        "compared": _compared(experiment),
        "compared_columns": _compared_columns(experiment),
        "columns": _columns(experiment),
        "rows": [_row(experiment, run, place) for place, run in enumerate(runs)],
        "withheld": [
            (run.label, run.why_withheld(), reasons(run), _log(experiment, run)) for run in experiment.withheld()
        ],
        "outcomes": outcomes(experiment),
        "decisions": decisions(experiment),
        "notes": notes(experiment),
        "figures": _figures(experiment, drawn=drawn),
        "environment": _flat(experiment.environment),
        "parameters": _flat(experiment.parameters),
        "files": [(run.label, _links(experiment, run)) for run in runs],
        "timelines": _embedded(timelines(experiment)),
        "timelines_script": script("timelines.js"),
    }


def _embedded(data: list[dict[str, Any]]) -> Markup:
    """Returns data as JSON that no text in it can end the page's script with; nothing for no data."""
    return Markup(json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")) if data else Markup("")


def _cell_columns(experiment: StoredExperiment) -> list[Column]:
    return [Column("cell", words=True)] if experiment.is_sweep else []


def _compared_columns(experiment: StoredExperiment) -> list[Column]:
    metrics = [Column.of(metric, "" if place else "peak") for place, metric in enumerate(COLUMNS)]
    return [Column("mechanism", words=True), *_cell_columns(experiment), Column("compared"), *metrics]


def _compared(experiment: StoredExperiment) -> list[dict[str, Any]]:
    """Returns the lines of the comparison; none where there is only one."""
    lines = comparison(experiment)
    return [
        {
            "id": "",
            "withheld": False,
            "cells": [
                Cell.of_mechanism(line.mechanism, line.mechanism),
                *([Cell.of_word(line.cell, value=place)] if experiment.is_sweep else []),
                Cell(line.counted, line.compared),
                *(Cell.of_number(line.values[metric.name], metric) for metric in COLUMNS),
            ],
        }
        for place, line in enumerate(lines if len(lines) > 1 else [])
    ]


def _columns(experiment: StoredExperiment) -> list[Column]:
    return [
        Column("mechanism", words=True),
        *_cell_columns(experiment),
        Column("round"),
        Column("verdict", words=True),
        Column("load", words=True),
        Column("machine", MACHINE_MEANING, words=True),
        *map(Column.of, _metrics(experiment)),
    ]


def _metrics(experiment: StoredExperiment) -> tuple[Metric, ...]:
    """Returns the metrics of the table, with those of a cluster where a run was on one."""
    on_hosts = any(run.entry.get("hosts") for run in experiment.runs)
    return tuple(metric for metric in METRICS if metric.in_table or (on_hosts and metric.name in _OF_HOSTS))


def _row(experiment: StoredExperiment, run: StoredRun, place: int) -> dict[str, Any]:
    """Returns a line of the table; a withheld run shows no figures."""
    return {
        "id": "",
        "withheld": bool(run.why_withheld()),
        "cells": [
            Cell.of_mechanism(run.mechanism, place),
            *([Cell.of_word(experiment.cell_label(run.cell))] if experiment.is_sweep else []),
            *judged_cells(run),
            *metric_cells(run, _metrics(experiment), lambda one, metric: metric.value(one.entry)),
        ],
    }


def reasons(run: StoredRun) -> list[str]:
    """Returns why a run is not valid: what stopped it, what the oracle says, how many results were lost or wrong."""
    counts = [(name, at(run.entry, name)) for name in ("lost", "doubled", "wrong", "out_of_order")]
    found = [f"{number:,.0f} {name.replace('_', ' ')}" for name, number in counts if number]
    lag = at(run.entry, "generator", "max_lag_ms")
    late = [f"the generator was up to {show(lag, 'ms')} late"] if run.load_kept == "late" and lag else []
    return [*(str(reason) for reason in run.entry.get("reasons") or []), *found, *late]


def _log(experiment: StoredExperiment, run: StoredRun) -> str:
    """Returns the relative address of the log of a run that failed, "" for any other."""
    failed = (run.folder / "error.json").exists() and (run.folder / "run.log").exists()
    return quote((run.folder / "run.log").relative_to(experiment.folder).as_posix()) if failed else ""


def _figures(experiment: StoredExperiment, *, drawn: bool) -> list[tuple[str, str, str, Markup]]:
    """Returns (name, title, caption, SVG element) of each figure that has something to show."""
    return [
        (figure.name, figure.title, figure.caption, inline(svg, figure.name))
        for figure in all_figures(sweep=experiment.is_sweep)
        if figure.in_report and (svg := svg_of(figure, experiment, drawn=drawn)) is not None
    ]


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


def _links(experiment: StoredExperiment, run: StoredRun) -> list[tuple[str, str]]:
    """Returns (file name, relative address) of the files that the run left."""
    if not run.entry.get("folder"):
        return []
    base = quote(run.folder.relative_to(experiment.folder).as_posix())
    return [(name, f"{base}/{name}") for name in _LINKED if (run.folder / name).exists()]


def redraw(folder: str) -> int:
    """Writes result.json, figures and report of a result folder again; returns the exit code."""
    path = Path(folder)
    if not (path / "experiment.json").exists():
        sys.stderr.write(f"{folder} is not a result folder: it has no experiment.json.\n")
        return 2
    write_result(path)
    write_all(path)
    sys.stdout.write(f"{write_report(path, drawn=True)}\n")
    return 0
