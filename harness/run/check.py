"""The oracle on a finished run, while its broker and checkpoint still stand."""

from pathlib import Path
from typing import Any

from harness.experiment.description import Run
from harness.experiment.schedules import plan_for
from harness.oracle.bins import BinOf, dense_bins, hash_bins
from harness.oracle.native.check import check_native
from harness.oracle.nexmark.run import check_nexmark
from harness.oracle.run import check_run
from harness.oracle.turns.run import check_turns
from harness.run.pipeline import disorder_ms, spark_checkpoint
from impls import catalog

__all__ = ["check", "expected_migrations"]


def expected_migrations(run: Run) -> int:
    """Returns how many commands the run's schedule gives; the mechanism `none` gets none."""
    return 0 if run.mechanism == "none" else len(plan_for(run.experiment))


def check(run: Run, folder: Path, bootstrap: str, topics: tuple[str, str], state: Path) -> dict[str, Any]:
    """Writes oracle.json for a run and returns it; `state` is the folder of its workers' environments."""
    experiment = run.experiment
    bin_of: BinOf = (
        dense_bins(experiment.keys, experiment.bins) if experiment.workload == "dense" else hash_bins(experiment.bins)
    )
    where: dict[str, Any] = {"bin_of": bin_of, "expected_migrations": expected_migrations(run)}
    log, native = spark_checkpoint(folder), run.mechanism in catalog.baselines()
    if experiment.workload == "nexmark":
        where |= {"query": experiment.query, "topics": topics, "native": native, "turns": run.real_time}
        return check_nexmark(bootstrap, folder, checkpoint=log, **where, disorder=disorder_ms(experiment))
    if native:
        where |= {"preloaded": experiment.keys, "topics": topics, "each": run.real_time}
        return check_native(bootstrap, folder, checkpoint=log, **where)
    where |= {"input_topic": topics[0], "output_topic": topics[1]}
    if run.real_time:
        own = "redis" not in catalog.options(run.mechanism)
        return check_turns(bootstrap, folder, state=state if own else None, **where)
    return check_run(bootstrap, folder, checkpoint=log, **where)
