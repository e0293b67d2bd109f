"""Where a query changes: broker, load and query of one case, and the change itself, in whichever way it is made."""

import contextlib
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from generators.clock import now_us
from harness.experiment.description import Experiment, Run
from harness.experiment.schedules import megaphone_pattern
from harness.files import JsonLines, read_lines, write_json
from harness.lab.processes import jvm_of
from harness.measure.memory import MemorySampler
from harness.oracle.changes.columns import VersionEffect
from harness.oracle.changes.run import VERSIONS_FILE, check_changes
from harness.oracle.columns import hash_bins
from harness.oracle.run import CheckedRun
from harness.suites.changes.cases import ChangeCase
from harness.suites.changes.query import request_for, write_pipeline
from harness.suites.faults.site import Site
from impls.driver.codes import Offers
from impls.driver.control import ask
from impls.errors import UsageError
from impls.placement import initial

_DURABLE_DEADLINE_S, _HELD_DEADLINE_S = 60.0, 180.0
_OVER = ("done", "refused")
_REQUESTS = "requests.jsonl"


class ChangeSite(Site):
    """start(), wait(), then changes, each by `change` or `restart`, then finish() and judge(); close() at the end.

    Attributes:
        code: what the pipeline does when all changes that were asked for hold.
    """

    start_deadline_s = 180.0  # a million keys are created first
    module = "harness.suites.changes.query"

    def __init__(self, case: ChangeCase, folder: Path):
        super().__init__(folder, case.mechanism, seed=case.setting.seed, durability="process", mode=case.setting.mode)
        self._case = case
        self._codes, self._ids, self._held, self._generations = [VersionEffect()], list[str](), list[str](), list[int]()
        write_pipeline(folder, VersionEffect())
        self._requests = JsonLines(folder / _REQUESTS)

    @property
    def code(self) -> VersionEffect:
        """What the pipeline does, or will do when the changes under way hold."""
        return self._codes[-1]

    def _await_ready(self) -> None:
        """Returns when the first epoch has run, which creates the state of all keys."""
        self.await_true(lambda: bool(self.epochs()), "the first epoch", self.start_deadline_s)

    def _run(self) -> Run:
        return self._case.run(self.broker.bootstrap)

    def _experiment(self) -> Experiment:
        return self._run().experiment

    def sampler(self) -> MemorySampler:
        """Returns what samples memory and CPU time of the case's processes while it is entered."""
        assert self._load is not None, "start() comes first"
        roles = {"driver": lambda: self.query.pid, "jvm": lambda: jvm_of(self.query.pid)}
        where = self.folder / "memory.jsonl"
        return MemorySampler(where, broker_pid=self.broker.pid, generator_pid=self._load.pid, roles=roles)

    def go_on(self, seconds: float) -> None:
        """Lets load and query go on for a while, and starts what has died meanwhile."""
        until = time.monotonic() + seconds
        self.await_true(lambda: time.monotonic() >= until, f"{seconds:g} s to pass", 2 * seconds + 60)

    def more_records(self) -> None:
        """Returns when a second's records more are applied, so that some have run under the last version."""
        enough = self.applied() + self._case.setting.rate
        self.await_true(lambda: self.applied() >= enough, "records behind the change", _DURABLE_DEADLINE_S)

    def _note_request(self, label: str, id_: str, at_us: int, **more: int) -> None:
        """Notes what was asked for, and when."""
        self._requests.write({"at_us": at_us, "label": label, "id": id_, **more})

    def request(self, new: VersionEffect, **how: Any) -> str:
        """Asks for a change of the pipeline and returns its id when it is durable, whoever died meanwhile.

        Raises StuckError when it is not in a minute.
        """
        offers = Offers(Path(self.checkpoint) / "rescale", fsync=True)
        request, at_us = request_for(offers, self.code, new, self._case.setting.keys, **how), now_us()
        id_ = self.durable(request, "change")
        self._codes.append(new)
        self._ids.append(id_)
        self._note_request(f"{asdict(new)}", id_, at_us)
        return id_

    def await_change(self, id_: str) -> dict[str, Any]:
        """Waits until a change is done or refused and returns its outcome; raises StuckError when it is not."""
        seen: dict[str, Any] = {}

        def over() -> bool:
            with contextlib.suppress(UsageError):
                seen.update(ask(self.checkpoint, {"do": "change", "id": id_}))
            return seen.get("state") in _OVER

        self.await_true(over, "the change to hold", _HELD_DEADLINE_S)
        if seen["state"] == "done":
            self._held.append(id_)
        return seen

    def migration(self, *, rescale: bool) -> str:
        """Asks for more workers, or for a quarter of the bins to move; returns the id of the durable command."""
        own, at_us = self._experiment(), now_us()
        request: dict[str, Any] = {"do": "rescale", "workers": own.workers_goal}
        if not rescale:
            goal = megaphone_pattern(initial(own.bins, own.workers, own.policy), own.workers)
            request = {"do": "rebalance", "goal": goal.tolist()}
        id_ = self.durable(request, "migration")
        self.migrations += 1
        self._note_request("rescale" if rescale else "rebalance", id_, at_us)
        return id_

    def await_migration(self) -> None:
        """Waits until no bin is on its way; raises StuckError when one still is in three minutes."""
        self.await_true(self.settled, "the migration to complete", _HELD_DEADLINE_S)

    def restart(self, new: VersionEffect, *, application: bool) -> str:
        """Stops the query, starts it with other code, and returns when an epoch has run with that.

        With `application` its process ends, and another one begins. Raises StuckError when no epoch has run in three
        minutes.
        """
        before, at_us, id_ = len(self._starts()), now_us(), f"restart-{len(self._codes)}"
        self.held = application
        if not application:  # its process looks there when the query has ended
            write_pipeline(self.folder, new)
        ask(self.checkpoint, {"do": "stop"})
        if application:
            self.await_true(lambda: bool(self.ended), "the application to end", _HELD_DEADLINE_S)
            write_pipeline(self.folder, new)
            self.release()
        self.await_true(lambda: len(self._starts()) > before, "the query to start again", _HELD_DEADLINE_S)
        generation, begun_us = self._starts()[-1]
        self.await_true(lambda: self._first_end(begun_us) > 0, "an epoch with the new code", _HELD_DEADLINE_S)
        self._codes.append(new)
        self._ids.append(id_)
        self._held.append(id_)
        self._generations.append(generation)
        self._note_request("restart", id_, at_us, until_us=self._first_end(begun_us))
        return id_

    def _starts(self) -> list[tuple[int, int]]:
        """Returns generation and time of each start of the query."""
        events = read_lines(self.folder / "events.jsonl")
        return [(event["generation"], event["at_us"]) for event in events if event["kind"] == "query_start"]

    def _first_end(self, since_us: int) -> int:
        """Returns when the first epoch with records that began behind a time had ended, 0 if none has."""
        ends = (line["end_us"] for line in self.epochs() if line["records"] and line["begin_us"] >= since_us)
        return next(ends, 0)

    def judge(self) -> dict[str, Any]:
        """Returns the oracle's answer; the query must have ended."""
        told = {"codes": [asdict(code) for code in self._codes], "ids": self._ids, "held": self._held}
        told |= {"by_generation": self._generations, "unplanned": bool(self._generations) and self._case.real_time}
        write_json(self.folder / VERSIONS_FILE, told)
        run = CheckedRun(self.broker.bootstrap, self.folder, hash_bins(self._case.setting.bins), self.migrations)
        return check_changes(run, None if self._case.real_time else self.checkpoint / "spark")

    def close(self) -> None:
        """Ends every process that still runs."""
        try:
            super().close()
        finally:
            self._requests.close()
