"""The comparison of an experiment: a line per mechanism (in a sweep: per cell and mechanism), lowest peak first."""

import math
import statistics
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rich.table import Table

from harness.oracle.verdict import merge
from harness.report.notes import left_out, notes
from harness.report.terminal import terminal
from plots import metrics
from plots.data import StoredExperiment, StoredRun, load
from plots.metrics import DASH, Metric, saturated
from plots.sweep import peak

_PEAK, _CONTROL = metrics.by_name("latency_migrating_max_ms"), metrics.by_name("latency_steady_max_ms")
COLUMNS = (
    _PEAK,
    *map(
        metrics.by_name,
        ("peak_ratio", "interval_p99_ms", "migration_s", "settled_s", "moved_bytes", "replicated_bytes"),
    ),
    metrics.by_name("latency_steady_p50_ms"),
    metrics.by_name("latency_steady_p99_ms"),
)


@dataclass(frozen=True, slots=True)
class Line:
    """A mechanism's medians over rounds; None where none of its runs may be compared or has such a number.

    Attributes:
        mechanism: its name.
        cell: in a sweep, what distinguishes these runs from others of the mechanism; empty otherwise.
        compared, runs: how many of its runs are compared, and how many there are.
        saturated: in how many of its runs the machine was saturated.
        control: no migration, so that the peak is the highest latency of steady time.
        values: medians by name of metric.
    """

    mechanism: str
    cell: str
    compared: int
    runs: int
    saturated: int
    control: bool
    values: dict[str, float | None] = field(default_factory=dict)

    @property
    def peak(self) -> float:
        """What lines are sorted by; infinite where nothing is known."""
        found = self.values[_PEAK.name]
        return math.inf if found is None else found

    @property
    def counted(self) -> str:
        """How many of its runs are compared, and whether the machine was saturated in them."""
        how_many = "" if self.saturated == self.runs else f"{self.saturated} "
        return f"{self.compared} of {self.runs}{f', {how_many}saturated' if self.saturated else ''}"

    def shown(self, metric: Metric) -> str:
        """Returns a column's text."""
        return metrics.show(self.values[metric.name], metric.unit)


def comparison(experiment: StoredExperiment) -> list[Line]:
    """Returns a line per mechanism, the lowest peak first; in a sweep, cell by cell."""
    cells = experiment.cells()
    lines = [
        (number, _line(name, experiment.cell_label(cell), runs))
        for number, cell in enumerate(cells)
        for name in experiment.mechanisms()
        if (runs := [run for run in experiment.runs if run.mechanism == name and run.cell == cell])
    ]
    return [line for _, line in sorted(lines, key=lambda pair: (pair[0], pair[1].peak))]


def _line(name: str, cell: str, runs: list[StoredRun]) -> Line:
    compared = [run for run in runs if not run.why_withheld()]
    values = {metric.name: _median(metric, compared) for metric in COLUMNS}
    control = bool(compared) and not any(run.entry.get("migrations") for run in compared)
    if control:
        values[_PEAK.name] = _median(_CONTROL, compared)
    full = sum(saturated(run.entry) for run in runs)
    return Line(name, cell, len(compared), len(runs), full, control, values)


def _median(metric: Metric, runs: list[StoredRun]) -> float | None:
    found = [value for run in runs if (value := metric.value(run.entry)) is not None]
    return statistics.median(found) if found else None


def comparison_table(experiment: StoredExperiment) -> Table:
    """Returns the comparison for a terminal."""
    lines = comparison(experiment)
    table = Table(box=None, pad_edge=False, title="Lowest peak first; medians over rounds", title_justify="left")
    swept = experiment.is_sweep
    for title in (*(("cell",) if swept else ()), "mechanism", "valid"):
        table.add_column(title, overflow="fold")
    for metric in COLUMNS:
        table.add_column("peak" if metric is _PEAK else metric.label, justify="right")
    for line in lines:
        shown = [line.shown(metric) for metric in COLUMNS]
        head = [*([line.cell] if swept else []), line.mechanism, line.counted]
        table.add_row(*head, *(text if text != DASH else "-" for text in shown))
    return table


def print_comparison(folder: Path) -> None:
    """Prints the comparison table of a result folder, and what became of migrations that did not just move bins."""
    console, experiment = terminal(), load(folder)
    console.print(comparison_table(experiment))
    for run, migration, sentence in outcomes(experiment):
        console.print(f"{run}, {migration}: {sentence}", markup=False, soft_wrap=True)
    for sentence in filter(None, (left_out(experiment), *notes(experiment))):
        console.print(sentence, markup=False, soft_wrap=True)


def outcomes(experiment: StoredExperiment) -> list[tuple[str, str, str]]:
    """Returns (run, migration, sentence) of each migration that did not just move its bins, in order of the runs."""
    return [
        (", ".join(filter(None, (run.label, experiment.cell_label(run.cell)))), told["label"] or told["id"], sentence)
        for run in experiment.ordered()
        for told in run.entry.get("migrations") or []
        if (sentence := told.get("outcome"))
    ]


@dataclass(frozen=True, slots=True)
class Conclusion:
    """A mechanism, the worst verdict of its runs and one sentence."""

    mechanism: str
    verdict: str
    text: str


def conclusions(experiment: StoredExperiment) -> list[Conclusion]:
    """Returns one line for each mechanism of the experiment, also for those without a run."""
    text = partial(_text_of_sweep, experiment) if experiment.is_sweep else _text
    return [
        Conclusion(name, worst_verdict(runs), text(runs, experiment.rounds_of(name)))
        for name in experiment.mechanisms()
        for runs in [[run for run in experiment.ordered() if run.mechanism == name]]
    ]


def worst_verdict(runs: list[StoredRun]) -> str:
    """Returns the worst verdict of runs, unknown where there is none."""
    return merge(run.verdict for run in runs)


def _text(runs: list[StoredRun], comparable: list[StoredRun]) -> str:
    if not runs:
        return "No run was completed."
    withheld = len(runs) - len(comparable)
    note = f" {withheld} of {len(runs)} runs withheld." if withheld else ""
    if not comparable:
        return f"Withheld: {', '.join(dict.fromkeys(run.why_withheld() for run in runs))}."
    note = _cache(comparable) + note
    moved = any(run.entry.get("migrations") for run in comparable)
    return (_moved(comparable) if moved else _control(comparable)) + note


def _text_of_sweep(experiment: StoredExperiment, runs: list[StoredRun], comparable: list[StoredRun]) -> str:
    cells = {experiment.cell_label(run.cell): value for run in comparable if (value := peak(run)) is not None}
    note = f" {len(runs) - len(comparable)} of {len(runs)} runs withheld." if len(comparable) < len(runs) else ""
    if not cells:
        return f"No run may be compared.{note}" if runs else "No run was completed."
    low, high = (f(cells, key=cells.__getitem__) for f in (min, max))
    shown = [f"{metrics.show(cells[cell], 'ms')} ({cell})" for cell in (low, high)]
    return f"Every record was done within {shown[0]} at best and {shown[1]} at worst.{note}"


def _control(runs: list[StoredRun]) -> str:
    return (
        f"No migration: half of the records were done within {_over(runs, 'latency_steady_p50_ms')}, "
        f"99 % within {_over(runs, 'latency_steady_p99_ms')}, every one within {_over(runs, 'latency_steady_max_ms')}."
    )


def _moved(runs: list[StoredRun]) -> str:
    pull = _over(runs, "longest_pull_ms")
    return (
        f"While migrating, every record was done within {_over(runs, 'latency_migrating_max_ms')}: "
        f"{_over(runs, 'peak_ratio')} the peak of a steady window; the longest migration took "
        f"{_over(runs, 'migration_s')}{'' if pull == metrics.DASH else f', the longest pull {pull}'}."
    )


def _cache(runs: list[StoredRun]) -> str:
    if not any(run.entry.get("cache") for run in runs):
        return ""
    return (
        f" Of its reads the workers' caches answered {_over(runs, 'cache_hit_rate')}; waiting for the store took "
        f"{_over(runs, 'store_read_p50_ms')} of a steady epoch."
    )


def _over(runs: list[StoredRun], name: str) -> str:
    """Returns a metric's median over rounds, with the lowest and the highest where there are several."""
    metric = metrics.by_name(name)
    found = [value for run in runs if (value := metric.value(run.entry)) is not None]
    if not found:
        return metrics.DASH
    low, middle, high = (metrics.show(f(found), metric.unit) for f in (min, statistics.median, max))
    return middle if low == high else f"{middle} ({low} to {high})"
