"""The real driver, with a cluster in one process in Spark's place and lists in Kafka's."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memory import RESULTS, MemoryOutput

from chaos.cluster import Cluster
from chaos.parameters import Parameters
from chaos.workload import Batch
from impls.driver.checkpoint import Checkpoint
from impls.driver.driver import Driver, EpochRecord
from impls.durability.files import Files
from impls.operators.base import Operator
from impls.store.records import Results
from impls.worker.order import StepOrder


class Topic(MemoryOutput):
    """Results in memory; an attempt may die, or hand over, when half of an epoch's results are sent."""

    def __init__(self, name: str, cluster: Cluster):
        super().__init__(name)
        self._cluster = cluster

    def send(self, results: Results, *, bins: int, worker: int, generation: int, epoch: int) -> None:
        half = len(results.keys) // 2
        for index, (key, value) in enumerate(zip(results.keys, results.payloads, strict=True)):
            if index == half:
                self._cluster.point("sending")
            RESULTS[self.name].append((worker, epoch, index, key, value))
        self._cluster.point("sent")


@dataclass(frozen=True)
class Job:
    """A job as the driver sees it: `collect` runs it."""

    cluster: Cluster
    order: StepOrder
    batch: Batch

    def collect(self) -> list[dict[str, Any]]:
        return self.cluster.run(self.order, self.batch)


class SimulatedDriver(Driver):
    """One life of the driver, from opening the checkpoint to its end.

    Attributes:
        record: of the last epoch.
        files: the durable files, None for durability "none".
    """

    record: EpochRecord

    def __init__(self, parameters: Parameters, cluster: Cluster, folder: Path, operator: Operator, output: Any):
        self._cluster = cluster
        self.checkpoint = Checkpoint(folder / "checkpoint", {"bins": parameters.bins})
        self.files = None if parameters.durability == "none" else Files(str(self.checkpoint.own))
        try:
            super().__init__(
                parameters.make_controller(),
                self.checkpoint,
                operator=operator,
                output=output,
                state_dir=str(folder / "state"),
                files=self.files,
                replay_epochs=parameters.replay_epochs,
                on_epoch=self._done,
            )
        except BaseException:
            self.checkpoint.close()
            raise

    def _job(self, frame: Any, order: StepOrder) -> Any:
        return Job(self._cluster, order, frame)

    def _done(self, record: EpochRecord) -> None:
        self.record = record

    def close(self) -> None:
        """Lets go of the checkpoint, as the end of the process does."""
        self.checkpoint.close()
