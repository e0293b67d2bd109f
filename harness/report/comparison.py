"""The comparison of an experiment: a line per mechanism (in a sweep: per cell and mechanism), lowest peak first."""

import math
import statistics
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rich.table import Table

from harness.oracle.verdict import merge
from harness.report.terminal import terminal
from plots import metrics
from plots.data import StoredExperiment, StoredRun, load
from plots.metrics import DASH, SATURATED, Metric, at
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
        control: no migration, so that the peak is the highest latency of steady time.
        values: medians by name of metric.
    """

    mechanism: str
    cell: str
    compared: int
    runs: int
    control: bool
    values: dict[str, float | None] = field(default_factory=dict)

    @property
    def peak(self) -> float:
        """What lines are sorted by; infinite where nothing is known."""
        found = self.values[_PEAK.name]
        return math.inf if found is None else found

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
    return Line(name, cell, len(compared), len(runs), control, values)


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
        head = [*([line.cell] if swept else []), line.mechanism, f"{line.compared} of {line.runs}"]
        table.add_row(*head, *(text if text != DASH else "-" for text in shown))
    return table


def print_comparison(folder: Path) -> None:
    """Prints the comparison table of a result folder, and what became of migrations that did not just move bins."""
    console, experiment = terminal(), load(folder)
    console.print(comparison_table(experiment))
    for run, migration, sentence in outcomes(experiment):
        console.print(f"{run}, {migration}: {sentence}", markup=False, soft_wrap=True)
    for sentence in notes(experiment):
        console.print(sentence, markup=False, soft_wrap=True)


def outcomes(experiment: StoredExperiment) -> list[tuple[str, str, str]]:
    """Returns (run, migration, sentence) of each migration that did not just move its bins, in order of the runs."""
    return [
        (", ".join(filter(None, (run.label, experiment.cell_label(run.cell)))), told["label"] or told["id"], sentence)
        for run in experiment.ordered()
        for told in run.entry.get("migrations") or []
        if (sentence := told.get("outcome"))
    ]


def notes(experiment: StoredExperiment) -> list[str]:
    """Returns sentences that a reader of the comparison must know: the load, hosts, a busy or saturated machine."""
    about = (_arrivals, _gone_on, _hosts, _clocks, _busy, _saturated)
    return [sentence for tell in about if (sentence := tell(experiment))]


def _arrivals(experiment: StoredExperiment) -> str:
    """Returns a sentence about how records arrived; empty where nothing says."""
    beats = sorted({beat for run in experiment.runs if (beat := run.load.get("arrivals_ms"))})
    lags = [lag for run in experiment.runs if (lag := at(run.entry, "generator", "lag_ms", "p50")) is not None]
    if not beats or not lags:
        return ""
    return (
        f"Records arrived every {' or '.join(f'{beat:g}' for beat in beats)} ms, and were sent "
        f"{statistics.median(lags):.1f} ms behind their schedule (median), which is in every latency."
    )


def _saturated(experiment: StoredExperiment) -> str:
    """Returns a sentence about the runs that left no processor idle; empty if there is none."""
    full = [run for run in experiment.ordered() if (idle := at(run.entry, "cpu_idle")) is not None and idle < SATURATED]
    if not full:
        return ""
    return (
        f"The machine was saturated in {', '.join(run.label for run in full)}: less than {SATURATED:.0%} of its CPU "
        "time was idle, so that records waited for a processor. A lower rate or more processors tell mechanisms apart."
    )


def _hosts(experiment: StoredExperiment) -> str:
    """Returns a sentence about where the workers of a cluster ran; empty without one."""
    shares = [share for run in experiment.runs if (share := at(run.entry, "hosts", "stayed_share")) is not None]
    lost = sum(int(at(run.entry, "hosts", "lost_sources") or 0) for run in experiment.runs)
    if not shares:
        return ""
    told = f"Workers ran on the host that they ran on before in at least {min(shares):.1%} of epochs"
    return f"{told}; {lost} pulls came from the checkpoint, as a host did not hand them out." if lost else f"{told}."


def _clocks(experiment: StoredExperiment) -> str:
    """Returns a sentence about the clocks of a cluster's hosts, which latencies are measured with; empty without."""
    found = [clock for run in experiment.runs for clock in (run.entry.get("hosts") or {}).get("clocks", ())]
    if not found:
        return ""
    worst = max(found, key=lambda clock: abs(clock["offset_ms"]))
    return (
        f"The hosts' clocks are at most {worst['offset_ms']:+.2f} ms off this machine's (host {worst['host']}, "
        f"measured to within {worst['within_ms']:.2f} ms); latencies are off by as much."
    )


def _gone_on(experiment: StoredExperiment) -> str:
    """Returns a sentence about the runs whose load went on past its end; empty if none did."""
    runs = [f"{run.label} ({s:g} s)" for run in experiment.ordered() if (s := at(run.entry, "generator", "extended_s"))]
    what = "The load went on until every migration was crossed and steady state was back, or to its limit, in"
    return f"{what} {', '.join(runs)}." if runs else ""


def _busy(experiment: StoredExperiment) -> str:
    """Returns a sentence about the runs during which the machine was busy, and what to do; empty if there is none."""
    busy = sum(run.machine == "busy" for run in experiment.runs)
    if not busy:
        return ""
    verb, whose = ("is", "its") if busy == 1 else ("are", "their")
    return (
        f"{busy} of {len(experiment.runs)} runs {verb} left out of the comparison: other work took more than 10 % of "
        f"{whose} CPU time. Run the same command again when the machine is quiet, with --resume for these runs only or "
        "with --force for all."
    )


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
