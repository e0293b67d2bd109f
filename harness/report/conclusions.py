"""One line for each mechanism: what its runs showed, or why they show nothing."""

import statistics
from dataclasses import dataclass
from functools import partial

from plots import metrics
from plots.data import StoredExperiment, StoredRun
from plots.sweep import peak

__all__ = ["Conclusion", "conclusions", "worst_verdict"]


@dataclass(frozen=True, slots=True)
class Conclusion:
    """A mechanism, the worst verdict of its runs and one sentence."""

    mechanism: str
    verdict: str
    text: str


_WORST_FIRST = ("invalid", "unknown", "valid")


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
    found = {run.verdict for run in runs}
    return next((verdict for verdict in _WORST_FIRST if verdict in found), "unknown")


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
