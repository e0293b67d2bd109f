"""The oracle on a finished run, while its broker and checkpoint still stand."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from generators.clock import now_us
from harness.experiment.description import Run
from harness.experiment.schedules import SECOND, plan_for
from harness.measure.migrations import SURE, outstanding, passed_over
from harness.oracle.columns import dense_bins, hash_bins
from harness.oracle.commits import check_commits
from harness.oracle.native import check_native
from harness.oracle.nexmark.run import check_nexmark
from harness.oracle.run import CheckedRun, check_run
from harness.run.application import Application
from harness.run.chained import second_of
from harness.run.pipeline import disorder_ms, spark_checkpoint
from harness.run.recorder import Recorder
from impls import catalog

_DEADLINE_S = 120.0  # of reading each topic


def expected_migrations(run: Run) -> int:
    """Returns how many commands the run's schedule gives; the mechanism `none` gets none."""
    return 0 if run.mechanism == "none" else len(plan_for(run.experiment))


def check(run: Run, folder: Path, bootstrap: str, topics: tuple[str, str], state: Path) -> dict[str, Any]:
    """Writes oracle.json for a run and returns it; `state` is the folder of its workers' environments."""
    experiment = run.experiment
    bin_of = (
        dense_bins(experiment.keys, experiment.bins) if experiment.workload == "dense" else hash_bins(experiment.bins)
    )
    log, native = spark_checkpoint(folder, run), run.mechanism in catalog.baselines()
    checked = CheckedRun(bootstrap, folder, bin_of, expected_migrations(run), topics, deadline_s=_DEADLINE_S)
    if experiment.workload == "nexmark":
        how: dict[str, Any] = {"native": native, "commits": run.real_time, "disorder": disorder_ms(experiment)}
        how["second"] = folder / SECOND if second_of(run) is not None else None
        return check_nexmark(checked, log, query=experiment.query, by_results=experiment.by_results, **how)
    if native:
        return check_native(checked, log, preloaded=experiment.keys, each=run.real_time)
    if run.real_time:
        return check_commits(checked, None if "redis" in catalog.options(run.mechanism) else state)
    return check_run(checked, log)


def unmet(
    run: Run, load: Mapping[str, Any], query: Application, recorder: Recorder, second: Recorder | None = None
) -> str:
    """Returns what the load still waits for, as the end of a sentence.

    A query that is autoscaled is so no more: the rescales there were are to be crossed by records, and no other begins.
    """
    query.end_autoscaling()
    if second is not None and (what := passed_over(*second.story())):
        return f"of the second stage, {what}"
    experiment, (events, epochs) = run.experiment, recorder.story()
    if experiment.autoscale is not None:
        commands = {event["id"] for event in events if event["kind"] == "command"}
        left = outstanding(events, epochs, expected=len(commands), bins=experiment.bins, calm=False)
        return left or unscheduled(events, load, experiment.bins, now_us())
    warm_us = load["start_us"] + round(experiment.lead_in_s * 1e6)
    return outstanding(events, epochs, expected=expected_migrations(run), bins=experiment.bins, warm_us=warm_us)


def unscheduled(events: Sequence[Mapping[str, Any]], load: Mapping[str, Any], bins: int, at_us: int) -> str:
    """Returns which migration no record can have crossed that was due behind its end, as the end of a sentence.

    A query that was overloaded applies records behind a migration that were due before its end.

    Args:
        events: of the run so far, all migrations ended.
        load: its load.json.
        bins: number of bins.
        at_us: wall clock.
    """
    due = _due_at(load, at_us)
    moves = {event["id"]: event["moves"]["bins"] for event in events if event["kind"] == "command"}
    for event in (event for event in events if event["kind"] == "migration_end"):
        moved = min(moves.get(event["id"], 0), bins)
        if moved and (due - _due_at(load, event["at_us"])) * moved < SURE * bins:
            return f"no record was due behind the migration {event['id']!r}"
    return ""


def due_of(load: dict[str, Any]) -> Callable[[], int] | None:
    """Returns what counts the records that are due by now; None where not every record becomes one of the query's."""
    if "nexmark" in load or not load.get("due_by_second"):
        return None
    return lambda: _due_at(load, now_us())


def _due_at(load: Mapping[str, Any], at_us: int) -> int:
    by_second = load["due_by_second"]  # it grows when the load goes on
    return int(np.interp((at_us - load["start_us"]) / 1e6, range(len(by_second) + 1), [0, *by_second]))
