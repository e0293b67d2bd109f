"""The count as a job of Flink's, rescaled by its adaptive scheduler or with a savepoint."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.lab.engines.engine import Engine, Job, compiled, jars_of
from harness.lab.engines.flink.cluster import FlinkCluster
from harness.lab.engines.process import RestError
from harness.lab.waiting import wait_for
from impls.errors import StateError
from impls.mechanisms.flink.baseline import Flink

_SOURCE = Path(__file__).resolve().parent / "FlinkCount.java"
_SOURCES = 2
_DEADLINE_S = 600.0
_PAUSE_S = 0.2
_OVER = ("FAILED", "CANCELED", "FINISHED", "SUSPENDED")


def requirements(vertices: Sequence[Mapping[str, Any]], workers: int) -> dict[str, Any]:
    """Returns what the adaptive scheduler is asked for: the counters as many as workers, the sources as they are.

    >>> requirements([{"id": "a", "name": "Source: source", "parallelism": 2}, {"id": "b", "name": "count"}], 4)["b"]
    {'parallelism': {'lowerBound': 1, 'upperBound': 4}}
    """
    wanted = {v["id"]: workers if "count" in v["name"] else int(v["parallelism"]) for v in vertices}
    return {id_: {"parallelism": {"lowerBound": 1, "upperBound": number}} for id_, number in wanted.items()}


def running_with(job: Mapping[str, Any], workers: int) -> bool:
    """Returns whether all tasks of a job run, the counters as many as workers."""
    counters = [v for v in job["vertices"] if "count" in v["name"]]
    running = all(v["tasks"].get("RUNNING", 0) == v["parallelism"] for v in job["vertices"])
    return running and all(v["parallelism"] == workers for v in counters)


class _NoSavepointError(StateError):
    """A savepoint was asked for and has failed."""


class FlinkEngine(Engine):
    """See `Engine`."""

    def __init__(self, given: Flink, job: Job):
        self.name, self.stops = "Flink", not given.adaptive
        self._given, self._job = given, job
        self._cluster = FlinkCluster(given, job.folder, max(_SOURCES, job.most_workers + 1))
        self._jar, self._id = "", ""

    def start(self, workers: int) -> None:
        """Starts the cluster and the job."""
        jar = compiled(_SOURCE, jars_of("flink"))
        self._cluster.start()
        self._jar = self._cluster.upload(jar)
        self._run(workers)

    def _run(self, workers: int, savepoint: str | None = None) -> None:
        own = self._job
        arguments = [own.bootstrap, own.group, own.results, self._given.buffer_ms, _SOURCES, workers, *own.topics]
        body: dict[str, Any] = {"entryClass": "rescale.FlinkCount", "programArgsList": list(map(str, arguments))}
        if savepoint is not None:
            body |= {"savepointPath": savepoint, "claimMode": "CLAIM"}
        self._id = self._ask("POST", f"/jars/{self._jar}/run", body)["jobid"]
        self._await_running(workers)

    def _await_running(self, workers: int) -> None:
        def running() -> bool:
            return running_with(self._told(), workers)

        wait_for(running, f"Flink to run with {workers} workers", _DEADLINE_S, tend=self.check)

    def rescale(self, workers: int) -> None:
        """Asks the adaptive scheduler, or stops the job with a savepoint and starts it from there."""
        if self._given.adaptive:
            wanted = requirements(self._told()["vertices"], workers)
            self._ask("PUT", f"/jobs/{self._id}/resource-requirements", wanted)
            self._await_running(workers)
            return
        job, self._id = self._id, ""  # whose end is no failure from here on
        self._run(workers, self._stopped(job))

    def _stopped(self, job: str) -> str:
        """Stops a job and returns where its savepoint is; one that fails, as its worker has died, is made again."""
        end = time.monotonic() + _DEADLINE_S
        while True:
            try:
                location = self._savepoint(job)
            except (RestError, _NoSavepointError):  # the job may just be starting again
                self._cluster.check()
                if time.monotonic() > end:
                    raise
                time.sleep(_PAUSE_S)
                continue
            wait_for(lambda: self._status(job) == "FINISHED", "Flink's job to end", _DEADLINE_S)
            return location

    def _savepoint(self, job: str) -> str:
        """Asks once for a job's end with a savepoint and returns where that is; raises _NoSavepointError for none."""
        body = {"targetDirectory": f"file://{self._job.folder}/savepoints", "drain": False, "formatType": "NATIVE"}
        request = self._ask("POST", f"/jobs/{job}/stop", body)["request-id"]
        told: dict[str, Any] = {}

        def completed() -> bool:
            told.update(self._ask("GET", f"/jobs/{job}/savepoints/{request}"))
            return bool(told["status"]["id"] == "COMPLETED")

        wait_for(completed, "Flink to answer about a savepoint", _DEADLINE_S, tend=self._cluster.check)
        found: dict[str, Any] = told["operation"]
        if "location" not in found:
            raise _NoSavepointError(f"Flink made no savepoint: {found.get('failure-cause', {}).get('class')}.")
        return str(found["location"])

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        return self._cluster.rest.ask(method, path, body)

    def _told(self) -> dict[str, Any]:
        found: dict[str, Any] = self._ask("GET", f"/jobs/{self._id}")
        return found

    def _status(self, job: str) -> str:
        return str(self._ask("GET", f"/jobs/{job}/status")["status"])

    def kill_worker(self) -> int:
        """Kills the task manager and starts it again; the job goes on from its last checkpoint."""
        return self._cluster.kill_worker()

    def check(self) -> None:
        """Raises StateError when a process, or the job, has ended."""
        self._cluster.check()
        if (job := self._id) and (status := self._status(job)) in _OVER:
            raise StateError(f"Flink's job is {status}: its log is in {self._job.folder}.")

    def read_topics(self) -> tuple[str, ...]:
        """Returns the topics of the input."""
        return self._job.topics

    def pids(self) -> dict[str, int]:
        """Returns the ids of job manager and task manager."""
        return self._cluster.pids()

    def stop(self) -> None:
        """Ends the cluster."""
        self._cluster.stop()
