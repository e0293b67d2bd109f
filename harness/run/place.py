"""Where a run's tasks run, and how these reach what the run starts beside them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from harness.experiment.description import Experiment, Run
from harness.lab.hosts.cluster import cluster
from harness.lab.ports import LOOPBACK
from harness.run.pipeline import state_dir
from impls.spark.clocks import clock_offsets
from impls.spark.master import address_towards, is_local, standalone_addresses

__all__ = ["Place", "placed"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run's tasks run.

    Attributes:
        master: address of Spark's master, None for local mode.
        address: of this machine, as tasks reach it.
        state_dir: folder of the workers' state, on each host its own.
    """

    master: str | None
    address: str
    state_dir: Path

    def tell_clocks(self, spark: SparkSession | None, tell: Callable[[str, dict[str, Any]], None]) -> None:
        """Tells, as an event, how far the clocks of a cluster's hosts are from this machine's."""
        if spark is not None and not is_local(self.master):
            tell("clocks", {"offsets": clock_offsets(spark, self.address)})


@contextmanager
def placed(run: Run, folder: Path) -> Iterator[Place]:
    """Yields the place of a run; a cluster that the experiment wants is started in the run's folder, and ended."""
    experiment = run.experiment
    if experiment.cluster is None:
        master = experiment.master
        addresses = standalone_addresses(master) if master else []
        yield Place(master, address_towards(addresses[0][0]) if addresses else LOOPBACK, state_dir(run, folder))
        return
    with cluster(
        experiment.cluster, folder=folder / "cluster", cores=_cores_of(experiment), netem=experiment.netem
    ) as hosts:
        yield Place(hosts.master, hosts.driver, hosts.state_dir)


def _cores_of(experiment: Experiment) -> int:
    """Returns the tasks that each host must run at once so that all workers have a place."""
    assert experiment.cluster is not None, "only a cluster has hosts"
    return -(-experiment.most_workers // experiment.cluster)
