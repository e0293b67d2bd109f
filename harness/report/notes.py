"""What a reader of a comparison must know besides its numbers, in a sentence each."""

import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from plots.data import StoredExperiment
from plots.metrics import SATURATED, at, saturated


def notes(experiment: StoredExperiment) -> list[str]:
    """Returns sentences that a reader of the comparison must know: the load, hosts, the machine, what is missing."""
    about = (_arrivals, _gone_on, _hosts, _clocks, _busy, _saturated, _unsteady)
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
    full = [run for run in experiment.ordered() if saturated(run.entry)]
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


def left_out(experiment: StoredExperiment) -> str:
    """Returns a sentence with the runs that are not compared for another reason than a busy machine, which has its own.

    Empty if there is none.
    """
    found = [run for run in experiment.ordered() if run.machine != "busy" and run.why_withheld()]
    runs = ", ".join(f"{run.label} ({run.why_withheld()})" for run in found)
    return f"The comparison leaves out {runs}." if found else ""


def _unsteady(experiment: StoredExperiment) -> str:
    """Returns a sentence with the valid runs that have no steady latency, each with its reason; empty without one."""
    valid = [run for run in experiment.ordered() if run.verdict == "valid"]
    found = [f"{run.label} ({why})" for run in valid if (why := why_unsteady(run.entry))]
    return f"There is no steady latency of {', '.join(found)}." if found else ""


_QUARTERS = 4
_GROWN = 1.2  # of a quarter of the time over the quarter before
_LONG_MS = 1_000.0


def why_unsteady(entry: dict[str, Any]) -> str:
    """Returns why a run's entry has no steady latency, in a few words; empty where it has one."""
    if at(entry, "latency_ms", "steady", "p50") is not None:
        return ""
    rows = entry.get("timeline") or []
    begins = [begin for m in entry.get("migrations") or [] if (begin := at(m, "begin_s")) is not None]
    first_s = min(begins, default=None)
    before = [float(row["p50"]) for row in rows if first_s is None or row["at_s"] < first_s]
    if not rows:
        return "no record's latency was measured"
    if grows(before):
        until = "whole run" if first_s is None else "whole time before the first migration"
        return f"its lag grew through the {until}, to {before[-1] / 1e3:.1f} s"
    warm_s = at(entry, "warmup_s")
    if warm_s is None:
        return str((entry.get("warmup") or {}).get("reason") or "it had not warmed up")
    return _no_window(warm_s, first_s)


def _no_window(warm_s: float, first_s: float | None) -> str:
    """Returns why no record lies between the end of a warm-up and the first migration, seconds of the load."""
    if first_s is None:
        return f"no record was due behind its warm-up, which lasted until {warm_s:.1f} s"
    if first_s <= warm_s:
        return f"no time lies between the end of its warm-up, {warm_s:.1f} s, and its first migration, {first_s:.1f} s"
    return f"every record from its warm-up's end on was still on its way when a migration began at {first_s:.1f} s"


def grows(latencies: Sequence[float]) -> bool:
    """Returns whether latencies in order of time (ms) grow from quarter to quarter, to more than a second.

    >>> grows([500, 900, 1_300, 1_700, 2_300, 2_900, 3_500, 4_200]), grows([2_000, 1_900] * 8)
    (True, False)
    """
    if len(latencies) < _QUARTERS:
        return False
    edges = [len(latencies) * quarter // _QUARTERS for quarter in range(_QUARTERS + 1)]
    medians = [statistics.median(latencies[low:high]) for low, high in pairwise(edges)]
    return medians[-1] > _LONG_MS and all(later > _GROWN * sooner for sooner, later in pairwise(medians))
