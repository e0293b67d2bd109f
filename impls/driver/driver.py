"""One epoch after another: plan, derive the order from the plan and what is known, run the workers, observe."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from impls.driver.base import Journals
from impls.driver.checkpoint import Checkpoint
from impls.driver.codes import Codes, Offers
from impls.driver.epochs import EpochRecord, QueryEnded, StopNeeded, in_short, observation_of, order_of, sentences_of
from impls.driver.keeper import Keeper
from impls.driver.metrics import Metrics
from impls.driver.preparing import NOTHING, Preparation
from impls.durability.files import Files
from impls.durability.schedule import REPLAY_EPOCHS
from impls.errors import ADVICE, StateError, UsageError
from impls.faults import fault
from impls.protocol.arrays import check_goal
from impls.protocol.changing import Changing
from impls.protocol.controller import Controller
from impls.protocol.coordinator import Awaited
from impls.protocol.ended import EndedEpoch
from impls.protocol.events import Command, Event, new_id
from impls.protocol.order import EpochOrder, Executor
from impls.protocol.places import BinPlace, place_of
from impls.protocol.plan import WrittenPlan
from impls.protocol.report import Report
from impls.protocol.versions import Change, Version
from impls.protocol.view import Observation

_LOG = logging.getLogger(__package__)
Milestone = Callable[[Mapping[int, int]], int | None]


class Driver:
    """Executes the controller's plans; everything durable it knows is in the checkpoint's journals.

    Attributes:
        metrics: what the query has done since this driver began.
        listeners: called with every finished epoch, behind `on_epoch`.
        prepare: what the start writes beside the journals.
        keeper: of the durable files, None without any.
    """

    def __init__(
        self,
        controller: Controller,
        checkpoint: Checkpoint,
        executor: Executor,
        *,
        files: Files | None,
        replay_epochs: int = REPLAY_EPOCHS,
        on_epoch: Callable[[EpochRecord], None] | None = None,
        prepare: Preparation = NOTHING,
    ):
        self.controller, self._checkpoint, self._executor = controller, checkpoint, executor
        self._on_epoch = on_epoch or (lambda _record: None)
        self.metrics = Metrics()
        self.listeners: list[Callable[[EpochRecord], None]] = [_log]
        self._last_end = time.perf_counter()
        self.ending = False
        self.before_end: Callable[[], bool] = lambda: False  # returns whether one more epoch is to be run
        self.prepare, self._prepared = prepare, False
        self.before_plan: list[Callable[[int], None]] = []  # called before an epoch gets its plan
        self.milestone: Milestone = lambda _: None  # of others' results, as far as was read: see `milestones.rising`
        self.awaited: Awaited = lambda _: {}  # what timers wait for, see `milestones.follow`
        self.waiting: list[Callable[[], int | None]] = []  # event times to come with results of others, None for none
        self.coming: list[Callable[[], bool]] = []  # whether the next of these may come any moment
        self.on_command: Callable[[], None] = lambda: None  # called when an epoch is wanted at once
        self.allowing: Callable[[int], AbstractContextManager[object]] = lambda _workers: nullcontext()  # see `Room`
        self.autoscaled_to = 0  # most workers that a policy may ask for
        self.now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000  # processing time of the next plan
        self.last_epoch = -1
        self._unmeasured = False  # whether an epoch was observed that the metrics do not have
        self._planned = self._held = -1  # the last epoch with a durable plan; the last one the controller holds
        self._lock = threading.RLock()
        self.codes = Codes(checkpoint.own / "code", fsync=checkpoint.fsync)
        self.offers = Offers(checkpoint.own, fsync=checkpoint.fsync)
        self._replay()
        self._first_epoch = self.last_epoch + 1
        self.keeper: Keeper | None = None
        if files is not None:
            ended = EndedEpoch.of(controller, self._written.get(self.last_epoch))
            self.keeper = Keeper(
                files, checkpoint.query, ended=ended, generation=checkpoint.generation, sizes=controller.size,
                replay_epochs=replay_epochs, begins_own=checkpoint.begins_own,
            )  # fmt: skip

    def _replay(self) -> None:
        journals = Journals.read(self._checkpoint.own, self._checkpoint.base)
        journals.replay(self.controller)
        self._written = {plan.epoch: plan for plan in journals.plans[-2:]}
        self.last_epoch = self._held = self.controller.observed
        self._planned = max([self.last_epoch, *(plan.epoch for plan in journals.plans)])

    @contextmanager
    def locked(self) -> Iterator[Controller]:
        """Gives the controller to one thread at a time, which may have it already.

        Whoever changes the controller has it, and so has whoever looks at it in another thread than the driver's.
        """
        with self._lock:
            yield self.controller

    @property
    def next_planned(self) -> int:
        """The first epoch that has no durable plan, from which on a command holds that comes now."""
        return self._planned + 1

    @property
    def hurries(self) -> bool:
        """Whether the next epoch is wanted at once."""
        return self.controller.busy or any(waiting() is not None for waiting in self.waiting)

    @property
    def migrating(self) -> bool:
        """Whether a migration is under way, or has ended and the metrics do not have its last epoch yet."""
        with self.locked() as controller:
            return controller.migrating or self._unmeasured

    @property
    def servers(self) -> Mapping[str, str]:
        """Hosts that can have workers, see `impls.protocol.order.Executor`."""
        return self._executor.servers

    def place(self, bin_: int) -> BinPlace:
        """Returns where a bin's state is, as of the plan that holds."""
        with self.locked() as controller:
            return place_of(bin_, controller, self._held)

    def command(
        self, kind: Literal["rescale", "rebalance"], goal: NDArray[np.int32], label: str, hosts: tuple[str, ...] = ()
    ) -> Command:
        """Makes a command durable, gives it to the controller and returns it; it holds from the next epoch planned.

        Raises UsageError, before that, for a goal that no journal could hold, with more workers than can run, or when
        the query ends.
        """
        goal = check_goal(goal, self.controller.bins)
        with self.locked(), self.allowing(1 + int(goal.max())):
            self._check_goes_on()
            command = Command.new(kind, goal, label, from_epoch=self.next_planned, hosts=hosts)
            self._checkpoint.commands.append(command.to_json())
            self.controller.accept(command)
        self.on_command()
        return command

    def change(self, make: Callable[[Changing], Version]) -> Change:
        """Makes a change of the pipeline durable, gives it to the controller and returns it.

        `make` makes the version, whose code is kept already, from what is known, under the lock. Raises UsageError when
        the query ends.
        """
        with self.locked():
            self._check_goes_on()
            version = make(self.controller.changing)
            change = Change(new_id(), version, self.next_planned)
            self._checkpoint.commands.append(change.to_json())
            self.controller.accept(change)
        self.on_command()
        return change

    def _check_goes_on(self) -> None:
        if self.ending:
            raise UsageError("The query has ended: start it again before giving it a command.")

    def end(self) -> None:
        """Ends the query where its next epoch would begin, for which nobody waits; no command is taken from now on."""
        with self.locked():
            before, self.ending = self.ending, True
        if not before:
            self.on_command()

    def stopped(self, epoch: int) -> None:
        """Takes in, and makes durable, that the query has ended before an epoch as its plan asked for."""
        seen = Observation(epoch, stopped=True)
        with self.locked():
            self._checkpoint.observed.append(seen.to_json())
            self.controller.observe(seen)

    def run_epoch(self, batch: Any, epoch: int) -> None:
        """Runs one epoch on what the executor takes for its records; raises QueryEnded or StopNeeded instead."""
        if not self.ending and epoch > self._planned:
            for look in self.before_plan:
                look(epoch)
        if self.ending and not self.before_end():
            raise QueryEnded
        begin, begin_us = time.perf_counter(), time.time_ns() // 1000
        if not self._prepared:
            self.prepare.first()
            self._prepared = True
        written = self._plan(epoch)
        order = self._order(written)
        planned = time.perf_counter()
        answers = self._executor.run(order, batch)
        epoch_ms = (time.perf_counter() - self._last_end) * 1e3
        ms = {
            "between": (begin - self._last_end) * 1e3,
            "plan": (planned - begin) * 1e3,
            "build": answers.build_ms,
            "job": answers.job_ms,
            **({"sink": answers.sink_ms} if answers.sink_ms else {}),
        }
        reports, cells = answers.reports, answers.cells
        events = self._observe(written, reports, epoch_ms, answers.job_ms)
        before, self._last_end = self._last_end, time.perf_counter()
        ms["observe"] = (self._last_end - before) * 1e3 - sum(ms.values())
        self.last_epoch = epoch
        end_us = time.time_ns() // 1000
        durable = self.keeper.kept_bytes if self.keeper else 0
        misplaced = self.controller.misplaced
        size = int(self.controller.size.sum())
        record = EpochRecord(written, begin_us, end_us, reports, cells, ms, misplaced, durable, tuple(events), size)
        self.metrics.take(record)
        self._unmeasured = False
        for hear in (self._on_epoch, *self.listeners):
            hear(record)
        if self._checkpoint.needs_base(epoch):
            self._rebase(written)
        fault("before-epoch-commit", query=self._checkpoint.query, epoch=epoch, migrating=written.migrating)

    def _order(self, written: WrittenPlan) -> EpochOrder:
        snapshot = self.keeper.to_snapshot(written.epoch) if self.keeper else ()
        with self.locked() as known:
            order = order_of(
                known, written, generation=self._checkpoint.generation, first_epoch=self._first_epoch, snapshot=snapshot
            )
            if (versions := written.versions) is None:
                return order
            asked = {*versions.required.tolist(), versions.trial, versions.guarded}
            return replace(order, codes=self.codes.of(known.changing, asked))

    def _plan(self, epoch: int) -> WrittenPlan:
        with self.locked():
            self._check_next(epoch)
            written = self._written.get(epoch)
            if written is None or written.plan.stop is not None:
                written = self._write_plan(epoch)
            elif epoch > self._held:
                self.controller.adopt(written)
            if written.plan.stop is not None:
                raise StopNeeded(epoch, written.plan.stop)
            self._held = epoch
        return written

    def _check_next(self, epoch: int) -> None:
        """Refuses an epoch that does not follow the journals, or whose plan is gone although it was observed."""
        last, folder = self.last_epoch, self._checkpoint.folder
        if epoch not in {last, last + 1} or (epoch == last and epoch not in self._written):
            raise StateError(
                f"Spark begins epoch {epoch}, but the journals in {self._checkpoint.own} end with epoch {last}: "
                f"the parts of {folder} do not belong together; {ADVICE}."
            )

    def _write_plan(self, epoch: int) -> WrittenPlan:
        """Makes a plan and makes it durable."""
        before = self.controller.changing.required
        written = self.controller.plan(epoch, self._checkpoint.generation, self.now_ms())
        where = {"query": self._checkpoint.query, "epoch": epoch, "migrating": written.migrating}
        fault("before-plan", **where)
        if written.drops:
            fault("between-pull-and-drop", **where)
        if written.versions is not None and (written.versions.required != before).any():
            fault("before-switch", **where)
        self._checkpoint.plans.append(written.to_json())
        fault("after-plan", **where)
        self._written, self._planned = {epoch: written}, epoch
        return written

    def _rebase(self, written: WrittenPlan) -> None:
        with self.locked():  # so that the controller knows every command in the journal
            self._checkpoint.rebase(written.epoch, self.controller.to_json(), written.to_json())

    def _observe(self, written: WrittenPlan, reports: list[Report], epoch_ms: float, job_ms: float) -> list[Event]:
        observation = observation_of(written, reports, epoch_ms, job_ms)
        self._checkpoint.observed.append(observation.to_json())
        with self.locked() as known:
            events = known.observe(observation)
            self._unmeasured = True
        if self.keeper is not None:
            self.keeper.observe(EndedEpoch.of(known, written), reports, known.routing, known.size)
        return events


def _log(record: EpochRecord) -> None:
    """Logs an epoch, and what happened in it."""
    if _LOG.isEnabledFor(logging.DEBUG):
        _LOG.debug("%s", in_short(record))
    if _LOG.isEnabledFor(logging.INFO):
        for sentence in sentences_of(record):
            _LOG.info("%s", sentence)
