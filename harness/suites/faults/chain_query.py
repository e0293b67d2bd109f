"""The chain under fault tests: the program `harness.suites.faults.chain_query` runs what FOLDER/run.json says.

Its first stage counts the records of each key. The second one counts the first one's results, each of which must have a
higher count than the one before it. Each stage writes the files of a run into a folder of its own.
"""

from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

from harness.experiment.description import Run
from harness.lab.bringup import KEEP_LOGS, open_session
from harness.lab.child import Parent, program
from harness.oracle.chain import SUM_RANGE
from harness.run.pipeline import mode_of, read_records
from harness.run.recorder import Recorder
from harness.suites.faults.query import end
from impls.api import stream
from impls.chains import Chain, chain
from impls.operators import StatefulMap
from impls.spark.realtime.settings import real_time_settings, real_time_threads
from impls.stages import Stage
from impls.worker.output import Output

STAGES = COUNTED, FOLLOWED = "counted", "followed"
NAME = "chain"
_POLL_S = 0.05


class Count(StatefulMap):
    """Counts the records of a key and sums up their times, by which one that is lost and one that is doubled differ."""

    columns = ("scheduled_us",)

    def update(self, key: bytes, record: dict[str, Any], state: Any) -> tuple[Any, Any]:
        """Returns count and sum, and a result with them."""
        count, total = state or (0, 0)
        after = count + 1, (total + record["scheduled_us"]) % SUM_RANGE
        name, at = int.from_bytes(key, "big"), record["scheduled_us"]
        return after, {"name": name, "n": after[0], "sum": after[1], "at": at}


class Follow(StatefulMap):
    """Counts the results of a key, and those of them that are not above the one before."""

    columns = ("n",)

    def update(self, key: bytes, record: dict[str, Any], state: Any) -> tuple[Any, Any]:
        """Returns both counts with the last one that was read, and a result with them."""
        seen, odd, last = state or (0, 0, 0)
        after = seen + 1, odd + (record["n"] <= last), record["n"]
        return after, dict(zip(("seen", "odd", "n"), after, strict=True))


def _start(spark: Any, run: Run, folder: Path, recorders: dict[str, Recorder]) -> Chain:
    own, bootstrap = run.experiment, str(run.experiment.bootstrap)

    def stage(name: str, key: str, time: str, operator: StatefulMap, schema: str | None = None) -> Stage:
        recorder = recorders[name]
        told: dict[str, Any] = {"on_epoch": recorder.on_epoch, "on_event": recorder.event}
        return Stage(name, partial(stream, key=key, time=time, operator=operator, **told), own.workers, schema)

    return chain(
        read_records(spark, bootstrap, "in"),
        [
            stage(COUNTED, "key", "scheduled_us", Count(), "name long, n long, at long"),
            stage(FOLLOWED, "name", "at", Follow()),
        ],
        name=NAME, bootstrap=bootstrap, results=Output(bootstrap, "out", own.result_partitions),
        state_dir=folder / "state", checkpoint=folder / "checkpoint", partitions=own.result_partitions, bins=own.bins,
        mechanism=run.mechanism, options=run.options(), durability=own.durability, **mode_of(run),
    )  # fmt: skip


def _run_chain(folder: Path, parent: Parent) -> None:
    """Runs the chain until it has ended; raises what a stage failed with."""
    run = Run.read(folder)
    own, settings, threads = run.experiment, dict(KEEP_LOGS), 2 * run.experiment.most_workers
    if run.real_time:
        settings |= real_time_settings()
        partitions = own.input_partitions, own.result_partitions
        threads = sum(real_time_threads(number, run.slots) for number in partitions)
    with ExitStack() as stack:
        recorders = {}
        for name in STAGES:
            (folder / name).mkdir(exist_ok=True)
            recorders[name] = stack.enter_context(closing(Recorder(folder / name, real_time=run.real_time)))
        running = _start(open_session("chain", threads, settings=settings), run, folder, recorders)
        while not running.await_end(_POLL_S):
            if parent.gone.is_set():
                running.stop()


if __name__ == "__main__":
    end(program(_run_chain))
