"""The page that compares many experiments: one HTML file from their result folders, which are only read."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

from harness.files import RESULTS, write_text
from harness.options import parse_list
from harness.report.comparison import worst_verdict
from harness.report.page import MACHINE_MEANING, Cell, Column, hue, inline, judged_cells, metric_cells, render, script
from harness.report.report import reasons
from harness.results.summary import validate
from impls.errors import UsageError
from plots.across import ACROSS, svg_across
from plots.data import StoredExperiment, StoredRun, load
from plots.marks import labels_of
from plots.metrics import DASH, Metric, by_name
from plots.sweep import peak

_PEAK = by_name("latency_migrating_max_ms")
_METRICS = (
    by_name("peak_ratio"),
    _PEAK,
    *map(by_name, ("latency_steady_p50_ms", "latency_steady_p99_ms", "migration_s", "moved_bytes")),
)
_PEAK_MEANING = "Highest latency while migrating; in a run without a migration, the highest of its steady time."
_SIGNS = {"valid": "✓", "invalid": "✗"}


@dataclass(frozen=True)
class ResultFolders:
    """Result folders: the experiments that can be compared, and a sentence for each folder that was passed over."""

    experiments: list[StoredExperiment]
    skipped: list[str]

    @cached_property
    def labels(self) -> list[str]:
        """A name for each experiment, each once."""
        return labels_of(self.experiments)


def find_experiments(folders: Sequence[Path]) -> ResultFolders:
    """Returns the finished experiments of result folders, and of folders that hold such; oldest name first.

    Raises:
        UsageError: a folder does not exist, or there is nothing in any of them to compare.
    """
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"The folder {folder} does not exist: name result folders, separated by commas.")
    places = {place.resolve(): place for folder in folders for place in _places(folder)}
    told = [(place, _why_skipped(place)) for place in sorted(places.values(), key=lambda place: place.name)]
    experiments = [load(place) for place, why in told if not why]
    if not experiments:
        where = ", ".join(str(folder) for folder in folders)
        raise UsageError(f"There is no finished experiment in {where}: ./inv bench makes one.")
    return ResultFolders(experiments, [why for _, why in told if why])


def _places(folder: Path) -> list[Path]:
    """Returns the folder itself if it looks like a result, or else the folders in it; itself where there are none."""
    if any((folder / name).exists() for name in ("experiment.json", "result.json")):
        return [folder]
    return [path for path in folder.iterdir() if path.is_dir() and path.name[0] != "."] or [folder]


def _why_skipped(place: Path) -> str:
    if not (place / "experiment.json").exists():
        return f"{place} is no result folder: it has no experiment.json."
    if not (place / "result.json").exists():
        return f"{place} has no result.json: it was cut off before its first result, or holds another kind of result."
    if not (place / "done").exists():
        return f"{place} is unfinished: ./inv bench --resume with the same options goes on with it."
    try:
        validate(place)
    except UsageError as error:
        return str(error)
    return ""


def write_comparison(experiments: ResultFolders, page: Path) -> Path:
    """Writes the page that compares the experiments, and returns its path.

    Raises:
        UsageError: the page cannot be written.
        ValueError: a file of a run is broken; the message names it.
    """
    text = render("across.html.j2", _content(experiments, page))
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        write_text(page, text)
    except OSError as error:
        raise UsageError(f"The page {page} cannot be written: {error.strerror}.") from error
    return page


def compare(folders: str, output: str) -> int:
    """Writes the page that compares experiments, prints its path as the last line and returns the exit code.

    Args:
        folders: result folders or folders of such, separated by commas; results/ where none is named.
        output: the page; compare.html in results/ where none is named.
    """
    named = [Path(name) for name in parse_list(folders)] or [RESULTS]
    try:
        experiments = find_experiments(named)
        page = write_comparison(experiments, Path(output or RESULTS / "compare.html"))
    except (UsageError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    for sentence in experiments.skipped:
        sys.stderr.write(f"{sentence}\n")
    sys.stdout.write(f"{page}\n")
    return 0


def _content(experiments: ResultFolders, page: Path) -> dict[str, Any]:
    named = list(zip(experiments.labels, experiments.experiments, strict=True))
    runs = [(label, experiment, run) for label, experiment in named for run in experiment.ordered()]
    places = {id(run): place for place, (_, _, run) in enumerate(runs)}
    figures = [(figure, svg_across(figure, experiments.experiments)) for figure in ACROSS]
    return {
        "total": len(runs),
        "valid": sum(run.verdict == "valid" for _, _, run in runs),
        "comparable": sum(len(experiment.comparable()) for experiment in experiments.experiments),
        "experiments": [_verdicts(label, experiment, page, places) for label, experiment in named],
        "identity": _identity(experiments.experiments),
        "caution": _caution(experiments.experiments),
        "skipped": experiments.skipped,
        "withheld": [
            (_run_label(label, experiment, run), run.why_withheld(), reasons(run), "")
            for label, experiment, run in runs
            if run.why_withheld()
        ],
        "columns": _columns(),
        "rows": [_row(place, *run) for place, run in enumerate(runs)],
        "figures": [(f.name, f.title, f.caption, inline(svg, f.name)) for f, svg in figures if svg is not None],
        "tips_script": script("tips.js"),
    }


def _run_label(label: str, experiment: StoredExperiment, run: StoredRun) -> str:
    return ", ".join(filter(None, (label, experiment.cell_label(run.cell), run.label)))


def _verdicts(label: str, experiment: StoredExperiment, page: Path, places: dict[int, int]) -> dict[str, Any]:
    """Returns an experiment's line: its worst verdict, its load in words, and a sign for every run by mechanism."""
    runs = experiment.ordered()
    report = experiment.folder / "report.html"
    address = quote(Path(os.path.relpath(report, page.parent)).as_posix()) if report.exists() else ""
    signs = [
        (name, hue(name), [_sign(experiment, run, places[id(run)]) for run in runs if run.mechanism == name])
        for name in experiment.mechanisms()
    ]
    valid = sum(run.verdict == "valid" for run in runs)
    told = f"{experiment.folder.name} · {valid} of {len(runs)} valid · commit {experiment.commit}"
    return {"label": label, "address": address, "verdict": worst_verdict(runs), "told": told, "signs": signs}


def _sign(experiment: StoredExperiment, run: StoredRun, place: int) -> tuple[int, str, str, str]:
    cell = experiment.cell_label(run.cell)
    told = f"{run.label}{f', {cell}' if cell else ''}: {run.verdict}, load {run.load_kept}, machine {run.machine}"
    word = "late" if run.load_kept == "late" else "busy" if run.machine == "busy" else ""
    if word and run.verdict == "valid":
        return place, word, "late", told
    return place, _SIGNS.get(run.verdict, "?"), run.verdict, told


def _identity(experiments: list[StoredExperiment]) -> str:
    here = [experiment.environment for experiment in experiments]
    parts = [f"{len(experiments)} experiment{'' if len(experiments) == 1 else 's'}"]
    for what, found in (
        ("commit", [experiment.commit for experiment in experiments]),
        ("host", [f"{one.get('host', 'unknown')} ({one.get('cores', '?')} cores)" for one in here]),
    ):
        names = list(dict.fromkeys(found))
        parts.append(f"{what}{'' if len(names) == 1 else 's'} {', '.join(names)}")
    return " · ".join(parts)


def _caution(experiments: list[StoredExperiment]) -> str:
    """Returns what keeps the experiments' times from being compared with each other; empty where nothing does."""
    here = [experiment.environment for experiment in experiments]
    several = [
        name
        for name, values in (
            ("machines", {(one.get("host"), one.get("cpu"), one.get("cores")) for one in here}),
            ("commits", {experiment.commit for experiment in experiments}),
        )
        if len(values) > 1
    ]
    if not several:
        return ""
    return (
        f"The experiments were measured on several {' and '.join(several)}: times compare within an experiment, "
        "ratios and bytes also between experiments."
    )


def _columns() -> list[Column]:
    numbers = [Column("peak", _PEAK_MEANING, "lower") if metric is _PEAK else Column.of(metric) for metric in _METRICS]
    words = [Column(name, words=True) for name in ("mechanism", "experiment", "workload")]
    return [
        *words,
        *map(Column, ("keys", "rate", "workers", "round")),
        Column("verdict", "What the oracle found when it recomputed every result from the input.", words=True),
        Column("load", "Whether the generator sent every record in time: met or late.", words=True),
        Column("machine", MACHINE_MEANING, words=True),
        *numbers,
        Column("commit", words=True),
    ]


def _row(place: int, label: str, experiment: StoredExperiment, run: StoredRun) -> dict[str, Any]:
    asked = {**experiment.parameters, **run.cell}
    return {
        "id": f"run-{place}",
        "withheld": bool(run.why_withheld()),
        "cells": [
            Cell.of_mechanism(run.mechanism, run.mechanism),
            Cell.of_word(label, "wrapped"),
            Cell.of_word(_workload(asked), "wrapped"),
            *_parameters(asked),
            *judged_cells(run),
            *metric_cells(run, _METRICS, _value),
            Cell.of_word(experiment.commit[:8], value=experiment.commit),
        ],
    }


def _value(run: StoredRun, metric: Metric) -> float | None:
    return peak(run) if metric is _PEAK else metric.value(run.entry)


def _workload(asked: dict[str, Any]) -> str:
    """Returns operator and query, and what of keys, profile and rate is not the usual."""
    nexmark = asked.get("workload") == "nexmark"
    shape = str(asked.get("rate_shape") or "constant")
    parts = [
        " ".join(str(asked[name]) for name in ("workload", "query") if asked.get(name)) or DASH,
        str(asked["profile"]) if nexmark and asked.get("profile") not in {None, "default"} else "",
        "" if nexmark else _keys(asked),
        "" if shape == "constant" else f"rate {shape}",
    ]
    return ", ".join(filter(None, parts))


def _keys(asked: dict[str, Any]) -> str:
    """Returns how keys are distributed; nothing where they are uniform."""
    if "skew" in asked:
        return f"zipf {asked['skew']}" if asked["skew"] else ""
    distribution = str(asked.get("distribution") or "uniform")
    exponent = f" {asked['exponent']}" if distribution == "zipf" and "exponent" in asked else ""
    return "" if distribution == "uniform" else f"{distribution}{exponent}"


def _parameters(asked: dict[str, Any]) -> list[Cell]:
    """Returns the cells of keys, rate and workers."""
    keys = asked.get("keys") if asked.get("workload") != "nexmark" else None
    rate, first = asked.get("rate"), asked.get("workers")
    last = asked.get("workers_goal") or first
    return [
        Cell(DASH if keys is None else f"{keys:,}", "" if keys is None else keys),
        Cell(DASH if rate is None else f"{rate:,}", rate or ""),
        Cell(DASH if first is None else f"{first}" if first == last else f"{first} → {last}", first or ""),
    ]
