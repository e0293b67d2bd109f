"""One run: the program `harness.run.process` does what FOLDER/run.json says, see `harness.lab.child`.

It says a line each second for whoever watches. Broker and Spark come up at once, and the run begins at the line `go`.
"""

import shutil
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from generators.clock import now_us
from harness.experiment import schedules as migrations
from harness.experiment.description import Run
from harness.experiment.schedules import SECOND
from harness.files import read_lines
from harness.lab.bringup import Services, bring_up
from harness.lab.broker import Broker
from harness.lab.child import Parent, program
from harness.lab.topics import create_topics
from harness.measure.memory import MemorySampler
from harness.oracle.nexmark.run import events_read
from harness.oracle.read import consumed_records
from harness.results.entry import summarise_run
from harness.run.application import Application, Place, Query, new_session, placed, redis_durability
from harness.run.chained import second_of
from harness.run.check import check, due_of, expected_migrations, unmet
from harness.run.disturb import Disturbance
from harness.run.engine import start_engine
from harness.run.load import LoadGenerator, preload, schedule
from harness.run.pipeline import log_dir, spark_checkpoint, start_native, start_query, start_two_stages, topics_of
from harness.run.progress import RunProgress
from harness.run.recorder import Recorder
from harness.run.runs import begin_anew
from impls import catalog
from impls.durability.files import Files
from impls.errors import StateError
from impls.operators.nexmark import QUERIES

_FIRST_EPOCH_DEADLINE_S = 300.0
_DRAIN_DEADLINE_S = 180.0
_QUIET_S, _QUIET_EPOCHS = 3.0, 8  # in real time a record is on its way for less; on a busy machine epochs are long
_GO_DEADLINE_S = 600.0


def execute(folder: Path, parent: Parent) -> None:
    """Runs the run; raises the error that stopped it. The folder has what was measured in any case."""
    run = Run.read(folder)
    if run.mechanism in catalog.baselines():
        begin_anew(folder)  # nothing tells which records of its preload are in its state
    resumed = (folder / "load.json").exists()
    recorder = Recorder(folder, real_time=run.real_time and run.mechanism not in catalog.baselines())
    progress = RunProgress(recorder, parent)
    disturbance = Disturbance(run, folder)
    with ExitStack() as stack:
        stack.callback(recorder.close)
        second = _second_recorder(run, folder)
        if second is not None:
            stack.callback(second.close)
        progress.say("starting")
        place = stack.enter_context(placed(run, folder))
        session = partial(new_session, run, place.master)
        where: dict[str, Any] = {
            "bootstrap": run.experiment.bootstrap,
            "redis": redis_durability(run),
            "host": place.address,
        }
        own = None if run.mechanism in catalog.engines() else session
        services = stack.enter_context(bring_up(folder, session=own, **where))
        broker, server = services.broker, services.redis
        progress.wait_for(parent.go.is_set, "the word to go", _GO_DEADLINE_S)
        topics = topics_of(run, folder)
        if not resumed:
            _forget_log(run, folder)
            create_topics(broker.bootstrap, {topics[0]: run.experiment.input_partitions})
            create_topics(
                broker.bootstrap,
                {topics[1]: run.experiment.result_partitions},
                broker_time=run.mechanism in catalog.baselines() or run.experiment.by_results,
            )
        else:
            recorder.event("resume")
        place.tell_clocks(services.session, recorder.event)
        with Application(
            services.session,
            new_session=session,
            start=_starter(run, folder, services, place, topics=topics, recorder=recorder, second=second),
            on_event=recorder.event,
            autoscale=None if run.mechanism == "none" else run.experiment.autoscale,
        ) as query:  # fmt: skip
            stack.callback(query.end)
            roles = {"redis": lambda: server.pid} if server else {}
            _Course(run, folder, topics[0], broker, query, progress, second).follow(disturbance, roles, resumed=resumed)
        progress.say("checking")
        place.tell_clocks(query.spark, recorder.event)
        query.end()
        check(run, folder, broker.bootstrap, topics, place.state_dir)
    summarise_run(folder)
    for heavy in (place.state_dir, *(folder / name for name in ("checkpoint", "broker", "redis", "cluster"))):
        shutil.rmtree(heavy, ignore_errors=True)
    _forget_log(run, folder)
    (folder / "done").touch()


def _second_recorder(run: Run, folder: Path) -> Recorder | None:
    """Returns what takes the epochs of the query's second stage, if it has one, in a folder of its own."""
    if second_of(run) is None:
        return None
    (folder / SECOND).mkdir(exist_ok=True)
    return Recorder(folder / SECOND, real_time=run.real_time)


def _forget_log(run: Run, folder: Path) -> None:
    """Deletes the changelog that the run, or one of the same name, has elsewhere."""
    if (uri := log_dir(run, folder)) is not None:
        Files(uri).clear()


def _starter(
    run: Run,
    folder: Path,
    services: Services,
    place: Place,
    *,
    topics: tuple[str, str],
    recorder: Recorder,
    second: Recorder | None,
) -> Callable[[Any], Query]:
    where: dict[str, Any] = {"run": run, "folder": folder, "bootstrap": services.broker.bootstrap, "topics": topics}
    if run.mechanism in catalog.engines():
        start = partial(start_engine, **where, on_epoch=recorder.on_line, on_event=recorder.event)
        return lambda _: start()
    if run.mechanism in catalog.natives():
        return partial(start_native, **where, on_epoch=recorder.on_line, on_event=recorder.event)
    where |= {"state": place.state_dir, "redis": services.redis_url}
    if second is not None:
        return partial(start_two_stages, **where, second=second, on_epoch=recorder.on_epoch, on_event=recorder.event)
    return partial(start_query, **where, on_epoch=recorder.on_epoch, on_event=recorder.event)


@dataclass
class _Course:
    """A run's way from its query's first epoch to the last result; each wait ends when the query does."""

    run: Run
    folder: Path
    topic: str
    broker: Broker
    query: Application
    progress: RunProgress
    second: Recorder | None

    def follow(self, disturbance: Disturbance, roles: dict[str, Callable[[], int | None]], *, resumed: bool) -> None:
        """Sends the load, gives the commands and returns when everything is applied."""
        experiment, recorder = self.run.experiment, self.progress.recorder
        self.progress.say("creating state")
        self._wait(lambda: recorder.epochs > 0, "the first epoch", _FIRST_EPOCH_DEADLINE_S)
        load = schedule(self.folder, experiment, self.topic, self._preloaded())
        waits_for = partial(unmet, self.run, load, self.query, recorder, self.second)
        with (
            LoadGenerator(self.folder, self.broker.bootstrap, load, resume=resumed, waits_for=waits_for) as generator,
            MemorySampler(
                self.folder / "memory.jsonl",
                broker_pid=self.broker.pid,
                generator_pid=generator.pid,
                roles=roles,
                executors=self.query.executors,
                whole=experiment.bootstrap is None and experiment.master is None,
            ),
        ):
            if not resumed:
                recorder.event("load_begin", {"planned_us": load["start_us"]})
            self.progress.due = due_of(load)
            self.progress.say("load")
            self.query.begin_autoscaling()
            self._command(load["start_us"], generator, disturbance)
            recorder.event("load_end")
            self.progress.say("draining")
            self._drain(load)

    def _wait(self, done: Callable[[], bool], what: str, deadline_s: float) -> None:
        def done_meanwhile() -> bool:
            if self.query.await_end(0):
                raise StateError("The query ended before its run was over.")
            return done()

        self.progress.wait_for(done_meanwhile, what, deadline_s)

    def _preloaded(self) -> dict[str, Any] | None:
        """Sends NEXMark's events from before the start and waits until they are taken in; only a new run does."""
        if self.run.experiment.workload != "nexmark" or (self.folder / "load.json").exists():
            return None
        self.progress.say("preloading")
        sent = preload(self.folder, self.broker.bootstrap, self.run.experiment, self.topic)
        self._await_consumed(sent["preload"])
        return sent

    def _await_consumed(self, records: int) -> None:
        """Waits until so many events are taken in: by Spark's log, in real time until what is read is applied."""
        log, still, known = spark_checkpoint(self.folder, self.run), self._still(), self.progress.recorder
        if self.run.real_time:
            wanted = events_read(self.broker.bootstrap, self.topic, self.run.experiment.query)

        def taken_in() -> bool:
            if self.run.real_time:
                return known.records >= wanted or still()
            return consumed_records(log, self.topic) >= records

        self._wait(taken_in, f"{records} records to be taken in", _FIRST_EPOCH_DEADLINE_S)

    def _still(self) -> Callable[[], bool]:
        """Returns what says whether records were applied, and then none for a while and for some epochs."""
        last, since, epoch = -1, 0.0, 0

        def still() -> bool:
            nonlocal last, since, epoch
            records, now = self.progress.recorder.records, self.query.status()["epoch"]
            if records != last:
                last, since, epoch = records, time.monotonic(), now
            return records > 0 and time.monotonic() - since >= _QUIET_S and now - epoch >= _QUIET_EPOCHS

        return still

    def _command(self, start_us: int, generator: LoadGenerator, disturbance: Disturbance) -> None:
        """Gives each command at its time, and returns when the generator has finished."""
        query = self.query
        given = sum(line["kind"] == "command" for line in read_lines(self.folder / "events.jsonl"))
        left = migrations.plan_for(self.run.experiment)[given : expected_migrations(self.run)]
        watch = partial(disturbance.watch, query=query, broker=self.broker)

        def finished() -> bool:
            if left and now_us() >= start_us + left[0].at_s * 1e6 and not query.status()["migrating"]:
                step = left.pop(0)
                before, goal = query.goal, step.goal(query.goal, *query.measured)
                query.rebalance(goal, label=step.label)
                watch(commanded=(before, goal))
            watch()
            return generator.finished()

        self._wait(finished, "the generator", self.run.experiment.longest_s * 2 + _DRAIN_DEADLINE_S)

    def _begun_us(self) -> int:
        """Returns when the last epoch began that has ended, 0 for none."""
        _, epochs = self.progress.recorder.story()
        return int(epochs[-1]["begin_us"]) if epochs else 0

    def _drain(self, load: dict[str, Any]) -> None:
        nexmark = load.get("nexmark")
        if nexmark is not None:  # its epochs count the events that its query reads, which are fewer than were sent
            self._await_consumed(load["records"] + nexmark["preload"])

        still = self._still()  # a worker that dies in real time cannot report what it has applied since the last epoch

        def drained() -> bool:
            status = self.query.status()
            known = nexmark is not None or self.progress.recorder.records >= load["records"]
            applied = known or (self.run.real_time and still())
            return applied and not status["migrating"] and status["queued"] == 0 and status.get("settled", True)

        self._wait(drained, "the last records to be applied", _DRAIN_DEADLINE_S)
        if nexmark is not None and (size_us := QUERIES[self.run.experiment.query].window_ms * 1000):
            end_us = (now_us() // size_us + 1) * size_us
            self._wait(lambda: self._begun_us() > end_us, "the last window of processing time", _DRAIN_DEADLINE_S)
        self.progress.recorder.event("drained")


if __name__ == "__main__":
    sys.exit(program(execute))
