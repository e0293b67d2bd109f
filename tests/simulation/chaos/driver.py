"""The real driver, with a cluster in one process in Spark's place and lists in Kafka's."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memory import RESULTS, MemoryOutput

from chaos.cluster import Cluster
from chaos.parameters import Parameters
from chaos.seated import SeatedSimulation
from chaos.workload import Batch
from impls.driver.checkpoint import Checkpoint
from impls.driver.driver import Driver
from impls.driver.epochs import EpochRecord
from impls.durability.files import Files
from impls.operators.base import Operator
from impls.protocol.order import Answers, EpochOrder
from impls.store.records import Results
from impls.transfer.settings import Transfer
from impls.worker.query import QuerySpec


class Topic(MemoryOutput):
    """Results in memory; an attempt may die, or hand over, when half of an epoch's results are sent."""

    def __init__(self, name: str, cluster: Cluster):
        super().__init__(name)
        self._cluster = cluster

    def send(self, results: Results, *, worker: int, epoch: int, **_: int) -> None:
        half = len(results.keys) // 2
        for index, (key, value) in enumerate(zip(results.keys, results.payloads, strict=True)):
            if index == half:
                self._cluster.point("sending")
            RESULTS[self.name].append((worker, epoch, index, key, value))
        self._cluster.point("sent")


@dataclass(frozen=True)
class ClusterExecutor:
    """Has the cluster run an epoch's tasks."""

    cluster: Cluster
    spec: QuerySpec

    servers: tuple[str, ...] = ()

    def run(self, order: EpochOrder, batch: Batch) -> Answers:
        clock = self.cluster.clock
        begin = clock.perf_counter()
        rows = self.cluster.run(self.spec, order, batch)
        return Answers.of(rows, build_ms=1e-3, job_ms=(clock.next_look() - begin) * 1e3)


class SimulatedDriver(Driver):
    """One life of the driver, from opening the checkpoint to its end.

    Attributes:
        record: of the last epoch, None before it.
        files: the durable files, None for durability "none".
    """

    record: EpochRecord | None = None

    def __init__(self, parameters: Parameters, cluster: Cluster, folder: Path, operator: Operator, output: Any):
        self.checkpoint = Checkpoint(folder / "checkpoint", {"bins": parameters.bins})
        self.files = None if parameters.durability == "none" else Files(str(self.checkpoint.own))
        try:
            query, state = self.checkpoint.query, str(folder / "state")
            transfer = _transfer(parameters, self.checkpoint.generation) if cluster.hosts else None
            spec = QuerySpec(
                query, parameters.bins, operator, output, state, self.files, transfer=transfer,
                on_error="skip" if parameters.refused else "fail", linked=parameters.linked > 0,
            )  # fmt: skip
            super().__init__(
                parameters.make_controller(),
                self.checkpoint,
                SeatedSimulation(cluster, spec, cluster.hosts) if cluster.hosts else ClusterExecutor(cluster, spec),
                files=self.files,
                replay_epochs=parameters.replay_epochs,
                on_epoch=self._done,
            )
        except BaseException:
            self.checkpoint.close()
            raise

    def _done(self, record: EpochRecord) -> None:
        self.record = record

    def close(self) -> None:
        """Lets go of the checkpoint, as the end of the process does."""
        self.checkpoint.close()


def _transfer(parameters: Parameters, generation: int) -> Transfer:
    """Returns settings with a secret of the generation, small messages, and no time to wait for a commit."""
    token = hashlib.sha256(b"%d %d" % (parameters.seed, generation)).digest()
    return Transfer(token, batch_bytes=300, streams=parameters.streams, busy_s=0.0)
