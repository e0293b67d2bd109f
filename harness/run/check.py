"""The oracle on a finished run, while its broker and checkpoint still stand."""

from pathlib import Path
from typing import Any

from harness.experiment.description import Run
from harness.experiment.schedules import plan_for
from harness.oracle.bins import BinOf, dense_bins, hash_bins
from harness.oracle.native.check import check_native
from harness.oracle.nexmark.run import check_nexmark
from harness.oracle.run import check_run
from harness.run.pipeline import disorder_ms, spark_checkpoint
from impls import catalog

__all__ = ["check", "expected_migrations"]


def expected_migrations(run: Run) -> int:
    """Returns how many commands the run's schedule gives; the mechanism `none` gets none."""
    return 0 if run.mechanism == "none" else len(plan_for(run.experiment))


def check(run: Run, folder: Path, bootstrap: str, topics: tuple[str, str]) -> dict[str, Any]:
    """Writes oracle.json for a run and returns it."""
    experiment = run.experiment
    bin_of: BinOf = (
        dense_bins(experiment.keys, experiment.bins) if experiment.workload == "dense" else hash_bins(experiment.bins)
    )
    where: dict[str, Any] = {
        "checkpoint": spark_checkpoint(folder), "bin_of": bin_of, "expected_migrations": expected_migrations(run),
    }  # fmt: skip
    native = run.mechanism in catalog.natives()
    if experiment.workload == "nexmark":
        where |= {"query": experiment.query, "topics": topics}
        return check_nexmark(bootstrap, folder, **where, disorder=disorder_ms(experiment), native=native)
    if native:
        where |= {"preloaded": experiment.keys, "topics": topics}
        return check_native(bootstrap, folder, **where)
    return check_run(bootstrap, folder, **where, input_topic=topics[0], output_topic=topics[1])
