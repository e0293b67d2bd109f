"""Where faults happen: broker, load and query of one campaign, with questions and commands for them."""

import base64
import contextlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from generators.clock import now_us
from harness.experiment.description import Experiment, Run
from harness.experiment.parameters import MICRO_BATCH, REAL_TIME
from harness.files import read_lines, write_json
from harness.lab.bringup import embedded_broker
from harness.lab.child import ProcessEnd
from harness.lab.processes import Arming, QueryProcess
from harness.lab.topics import create_topics
from harness.lab.waiting import wait_for
from harness.oracle.columns import dense_bins
from harness.oracle.commits import check_commits
from harness.oracle.run import CheckedRun, check_run
from harness.run.load import LoadGenerator
from harness.suites.faults.schedule import Fault
from harness.suites.faults.storage import Disk
from impls.driver.control import ask
from impls.driver.journal import read_journal
from impls.errors import UsageError

BINS = 16
_KEYS = 20_000
_RATE = 600
_TOPICS = ("in", "out")
_INPUT_PARTITIONS, _RESULT_PARTITIONS = 2, 4
_FEW, _MANY = 2, 4  # workers between which the query goes there and back
_ARRIVALS_MS = 50.0  # no latency is measured
_ENDLESS = 1 << 40  # records: the load goes on until it is told to stop
_COMMAND_DEADLINE_S = 60.0
_DRAIN_DEADLINE_S = 90.0
_RESTARTS_MAX = 3
_BATCH = "10 seconds"  # in real time: faults meet the ends of batches
_QUIET_S = 5.0


class StuckError(Exception):
    """Something did not come about before its deadline; the message says what."""


class EpochLines:
    """read() returns the lines of the epochs finished so far, ascending; of an epoch run twice the last one."""

    def __init__(self, folder: Path):
        self._path, self._bytes = folder / "epochs.jsonl", 0
        self._lines: dict[int, dict[str, Any]] = {}

    def read(self) -> list[dict[str, Any]]:
        """Reads what has come since the last call."""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._bytes)
                raw = file.read()
            whole = raw[: raw.rfind(b"\n") + 1]
            self._bytes += len(whole)
            for line in map(json.loads, whole.splitlines()):
                self._lines[line["epoch"]] = line
        return [self._lines[epoch] for epoch in sorted(self._lines)]


class Site:
    """start(), then faults, each between begin_fault() and the next, then stop_and_check(); close() whatever happened.

    While something is awaited, a broker that is dead is started again, and so is a query that has ended unless it is
    to be `held`: then `ended` says how it ended.
    """

    start_deadline_s = 90.0
    module = "harness.suites.faults.query"

    def __init__(self, folder: Path, mechanism: str, *, seed: int, durability: str, mode: str = MICRO_BATCH):
        self.folder, self.mechanism, self._mode = folder, mechanism, mode
        self.checkpoint, self.state = folder / "checkpoint", folder / "state"
        self._seed, self._durability = seed, durability
        self.arming = Arming(folder / "fault.json")
        self.query = QueryProcess(folder, self.arming.file, self.module)
        self.broker = embedded_broker(folder / "broker")
        self._load: LoadGenerator | None = None
        self._epochs = EpochLines(folder)
        self.migrations = 0
        self.held = False
        self.restarts = 0
        self.ended: list[ProcessEnd] = []
        self.stopped: set[int] = set()
        self.disk = Disk(self.state)

    @property
    def conditions(self) -> dict[str, int | bool | str]:
        """What further must hold where a fault happens, see `impls.faults`."""
        return {}

    def prepare(self, faults: list[Fault]) -> None:
        """Gives the workers' state a small disk if that is to be full."""
        if any(fault.victim == "disk" for fault in faults):
            self.disk.mount()

    def start(self) -> None:
        """Starts broker, load and query and returns when the first records are applied."""
        self.state.mkdir(parents=True, exist_ok=True)
        self.broker.start()
        create_topics(self.broker.bootstrap, dict(zip(_TOPICS, (_INPUT_PARTITIONS, _RESULT_PARTITIONS), strict=True)))
        write_json(self.folder / "run.json", self._run().to_json())
        self.query.start()
        self._await_ready()
        self._load = LoadGenerator(self.folder, self.broker.bootstrap, self._schedule(), resume=False)
        self.await_true(lambda: self.applied() > 0, "the first records to be applied", self.start_deadline_s)

    def _await_ready(self) -> None:
        """Returns when the load can begin; here it may begin before the query does."""

    def _run(self) -> Run:
        return Run(self._experiment(), self.mechanism, 0, 0, mode=self._mode)

    def _experiment(self) -> Experiment:
        return Experiment(
            mechanisms=(self.mechanism,), keys=_KEYS, rate=_RATE, lead_in_s=0.0, arrivals_ms=_ARRIVALS_MS,
            seed=self._seed, bins=BINS, workers=_FEW, workers_goal=_MANY, durability=self._durability,
            input_partitions=_INPUT_PARTITIONS, result_partitions=_RESULT_PARTITIONS,
            bootstrap=self.broker.bootstrap, batch=_BATCH,
        )  # fmt: skip

    def _schedule(self) -> dict[str, Any]:
        experiment = self._experiment()
        load = {
            "topic": _TOPICS[0], "partitions": experiment.input_partitions, "rate": experiment.rate,
            "records": _ENDLESS, "keys": experiment.keys, "distribution": experiment.distribution,
            "exponent": experiment.exponent, "seed": experiment.seed, "lead_in_s": experiment.lead_in_s,
            "arrivals_ms": experiment.arrivals_ms, "start_us": now_us() + 1_500_000,
        }  # fmt: skip
        write_json(self.folder / "load.json", {k: v for k, v in load.items() if k != "records"})
        return load

    def begin_fault(self) -> None:
        """Forgets what happened to the query before."""
        self.restarts, self.ended, self.held = 0, [], False

    def tend(self) -> None:
        """Starts the broker or the query again when it has ended, as whoever operates them would."""
        self.broker.revive()
        if self.held and self.ended:
            return
        ended = self.query.ended()
        if ended is None:
            return
        self.ended.append(ended)
        if self.held:
            return
        if self.restarts >= _RESTARTS_MAX:
            raise StuckError(f"The query ended {self.restarts + 1} times, at last with: {ended}")
        self.restarts += 1
        self.query.start()

    def release(self) -> None:
        """Starts a query that was held back."""
        self.held = False
        self.restarts += 1
        self.query.start()

    def await_true(self, done: Callable[[], bool], what: str, deadline_s: float) -> None:
        """Waits until done(), tending what dies; raises StuckError that names `what` when the deadline passes."""
        wait_for(done, what, deadline_s, tend=self.tend, error=StuckError)

    def epochs(self) -> list[dict[str, Any]]:
        """Returns the lines of the epochs finished so far, ascending; of an epoch run twice the last one."""
        return self._epochs.read()

    def applied(self) -> int:
        """Returns the records applied since the beginning."""
        return sum(line["records"] for line in self.epochs())

    @property
    def workers(self) -> int:
        """Workers that the last command asked for."""
        return (_FEW, _MANY)[self.migrations % 2]

    def migrate(self) -> None:
        """Commands the rescale there, or back; returns when the command is durable, whoever died meanwhile."""
        self.durable({"do": "rescale", "workers": (_MANY, _FEW)[self.migrations % 2]}, "migration")
        self.migrations += 1

    def durable(self, request: dict[str, Any], kind: str) -> str:
        """Gives a request of the control channel until the journal of commands has it, and returns its id.

        Args:
            request: for a migration or a change of the pipeline.
            kind: "change", or anything else for a migration.
        """
        before, names = self._journal(kind), list[str]()

        def is_durable() -> bool:
            if new := [id_ for id_ in self._journal(kind) if id_ not in before]:  # who was to answer may have died
                names[:] = new
                return True
            with contextlib.suppress(UsageError):
                names[:] = [ask(self.checkpoint, request)["id"]]
            return bool(names)

        self.await_true(is_durable, "the request to be durable", _COMMAND_DEADLINE_S)
        return names[0]

    def _journal(self, kind: str) -> list[str]:
        lines = read_journal(self.checkpoint / "rescale" / "commands.log")
        return [line["id"] for line in lines if (line["kind"] == "change") == (kind == "change")]

    def settled(self) -> bool:
        """Returns whether the query answers and every command given has reached its goal."""
        with contextlib.suppress(UsageError):
            status = ask(self.checkpoint, {"do": "status"})
            return not (status["migrating"] or status["misplaced"] or status["queued"])
        return False

    def stop_and_check(self) -> dict[str, Any]:
        """Ends load and query when all records are applied, and returns the oracle's answer for the whole campaign."""
        self.begin_fault()
        if self._mode == REAL_TIME:  # records must be scheduled behind the last migration, to have crossed it
            enough = self.applied() + _RATE
            self.await_true(lambda: self.applied() >= enough, "records behind the last migration", _DRAIN_DEADLINE_S)
        self.finish()
        return self._check()

    def finish(self) -> None:
        """Ends the load, and the query when all records are applied."""
        assert self._load is not None, "start() comes first"
        self._load.close()
        sent = json.loads((self.folder / "generator.json").read_text())["records"]
        self.await_true(self._drained(sent), "the last records", _DRAIN_DEADLINE_S)
        self.held = True
        ask(self.checkpoint, {"do": "stop"})
        self.await_true(lambda: bool(self.ended), "the query to stop", _DRAIN_DEADLINE_S)

    def _check(self) -> dict[str, Any]:
        """Returns the oracle's answer."""
        run = CheckedRun(self.broker.bootstrap, self.folder, dense_bins(_KEYS, BINS), self.migrations)
        return check_commits(run, self.state) if self._mode == REAL_TIME else check_run(run, self.checkpoint / "spark")

    def _drained(self, sent: int) -> Callable[[], bool]:
        """Returns what says that all records are applied.

        In real time a worker that dies may not have reported what it has applied: then nothing more is for a while.
        """
        seen = [(-1, 0.0)]

        def drained() -> bool:
            applied = self.applied()
            if applied != seen[-1][0]:
                seen[:] = [(applied, time.monotonic())]
            still = self._mode == REAL_TIME and time.monotonic() - seen[-1][1] >= _QUIET_S
            return (applied >= sent or still) and self.settled()

        return drained

    def owners(self, epoch: int) -> list[int]:
        """Returns the workers that bins were routed to in a finished epoch, ascending."""
        plans = {plan["epoch"]: plan for plan in read_lines(self.folder / "plan.jsonl")}
        routing = np.frombuffer(base64.b64decode(plans[epoch]["routing"]), "<u2")
        return [int(worker) for worker in np.unique(routing)]

    def close(self) -> None:
        """Ends every process that still runs."""
        with contextlib.ExitStack() as stack:
            stack.callback(self.disk.unmount)
            stack.callback(self.broker.stop)
            if self._load is not None:
                stack.callback(self._load.close)
            stack.callback(self.query.close)
