"""Watches a query epoch by epoch: is every plan valid, does each migration move what it must, and nothing else."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.suites.conformance.bounds import bound, completes
from impls import catalog
from impls.driver.epochs import EpochRecord
from impls.errors import InvalidPlanError
from impls.protocol.events import MigrationBegun, MigrationDone
from impls.protocol.plan import Pull, validate
from impls.protocol.report import Report
from impls.protocol.view import View


@dataclass(frozen=True, slots=True)
class Delta:
    """A move that ships what changed in a bin behind epoch `after`, up to and including epoch `upto`."""

    bin: int
    after: int
    upto: int


@dataclass
class WatchedMigration:
    """What one command did.

    Attributes:
        id, label: the command's.
        begun, done: its first and its last epoch; `done` is -1 until it is done or superseded.
        done_us: wall clock at the end of the last.
        bound: most epochs that it may take.
        must: how often each bin had to move when it began; `moved`: how often it has.
        moved_bytes: what the moves shipped; `must_bytes`: what they had to ship whole; `deltas`: and in part.
        most_bytes: the sizes of the bins moved after the epoch in which they were; they may have grown in it before.
        replicated_bytes: traffic of replicas and standbys meanwhile.
        network_bytes: those of `moved_bytes` that came from another host.
    """

    id: str
    label: str
    begun: int
    bound: int
    must: Counter[int]
    done: int = -1
    done_us: int = 0
    superseded: bool = False
    moved: Counter[int] = field(default_factory=Counter)
    moved_bytes: int = 0
    must_bytes: int = 0
    most_bytes: int = 0
    deltas: list[Delta] = field(default_factory=list)
    replicated_bytes: int = 0
    network_bytes: int = 0
    epochs: int = 0


class Watch:
    """`on_epoch` takes every epoch of one query; `problems` has what it finds wrong, with the command's label.

    Attributes:
        migrations: by label, in the order in which they began.
        problems: (label, sentence); the label is empty outside a migration.
        applied: records applied so far.
        moves: (epoch, bin, id of the migration) of every change of owner.
        waits: (epoch, bin) with queued records at the epoch's end.
    """

    def __init__(self, mechanism: str, options: Mapping[str, Any], initial: NDArray[np.int32]):
        self._name, self._options = mechanism, dict(options)
        self._shared = catalog.make(mechanism, **options).shared is not None
        self._initial = self._routing = self._location = self._goal = initial.astype(np.int32)
        self._queued, self._size = (np.zeros(len(initial), np.int64) for _ in range(2))
        self._replicas: dict[tuple[int, int], int] = {}
        self._goals: dict[str, NDArray[np.int32]] = {}
        self._current: WatchedMigration | None = None
        self._last = -1
        self._changed = threading.Condition()
        self.migrations: dict[str, WatchedMigration] = {}
        self.problems: list[tuple[str, str]] = []
        self.applied = 0
        self.moves: list[tuple[int, int, str]] = []
        self.waits: list[tuple[int, int]] = []

    def expect(self, label: str, goal: NDArray[np.int32]) -> None:
        """Says what a command that is about to be given asks for."""
        self._goals[label] = goal.astype(np.int32)

    def await_true(self, wanted: Callable[[], bool], timeout_s: float) -> bool:
        """Waits until something holds, asked whenever an epoch has ended, and returns whether that was so in time."""
        with self._changed:
            return self._changed.wait_for(wanted, timeout_s)

    def timed_moves(self) -> list[tuple[int, int, str]]:
        """Returns (time at which the migration had ended in µs, bin, id of the migration) of every bin moved."""
        done = [one for one in self.migrations.values() if one.done_us]
        return [(one.done_us, bin_, one.id) for one in done for bin_ in one.moved]

    @property
    def owners(self) -> NDArray[np.int64]:
        """The worker that has each bin."""
        return self._location.astype(np.int64)

    def done(self, label: str) -> bool:
        """Returns whether a migration has ended."""
        return label in self.migrations and self.migrations[label].done >= 0

    def on_epoch(self, record: EpochRecord) -> None:
        """Takes in a finished epoch; one that is run again changes nothing."""
        with self._changed:
            if record.written.epoch > self._last:
                self._take(record)
                self._last = record.written.epoch
            self._changed.notify_all()

    def _take(self, record: EpochRecord) -> None:
        ended = [event for event in record.events if isinstance(event, MigrationDone)]
        for event in record.events:
            if isinstance(event, MigrationBegun):
                self._begin(event)
        view, plan = self._view(record.written.epoch), record.written.plan
        try:
            validate(plan, view)
        except InvalidPlanError as error:
            self._wrong(f"the plan of epoch {view.epoch} is invalid: {error}")
        self._check_routing(view, plan.routing)
        pulls = {pull.bin: pull for pull in plan.pulls}
        for report in record.reports:
            self._pulled(report, pulls, view, from_replica=plan.from_replica)
        if self._current is not None:
            grown = dict(pair for report in record.reports for pair in zip(*report.sizes, strict=True))
            bins = [bin_ for report in record.reports for bin_ in report.moves.bins]
            self._current.most_bytes += sum(int(grown.get(bin_, view.size[bin_])) for bin_ in bins)
        self._state_after(record)
        if self._current is not None:
            self._current.epochs += 1
            self._current.replicated_bytes += sum(report.replication.bytes for report in record.reports)
        for event in ended:
            self._end(event, record.end_us)

    def _view(self, epoch: int) -> View:
        everyone = (self._routing, self._location, self._goal)
        return View(
            epoch=epoch,
            started=self._current.begun if self._current else 0,
            workers=1 + max(int(assignment.max()) for assignment in everyone),
            routing=self._routing.copy(),
            location=self._location.copy(),
            goal=self._goal.copy(),
            age=np.zeros(len(self._goal), np.int32),
            rate=np.zeros(len(self._goal)),
            queued=self._queued.copy(),
            size=self._size.copy(),
            replicas=dict(self._replicas),
        )

    def _begin(self, event: MigrationBegun) -> None:
        if self._current is not None:
            self._current.done, self._current.superseded = event.epoch, True
        self._goal = self._goals[event.label]
        view = self._view(event.epoch)
        away, onwards = (np.flatnonzero(x) for x in (view.location != view.routing, view.routing != view.goal))
        must = Counter(away.tolist()) + Counter(onwards.tolist())
        most = bound(self._name, self._options, view)
        self._current = WatchedMigration(event.id, event.label, event.epoch, most, must)
        self.migrations[event.label] = self._current

    def _check_routing(self, view: View, routing: NDArray[np.int32]) -> None:
        changed = np.flatnonzero(routing != view.routing)
        vain = [bin_ for bin_ in changed.tolist() if self._current is None or routing[bin_] != view.goal[bin_]]
        if vain:
            self._wrong(f"bin {vain[0]} is routed to worker {routing[vain[0]]} in epoch {view.epoch}, not its goal")
        self.moves += [(view.epoch, bin_, self._current.id if self._current else "") for bin_ in changed.tolist()]

    def _pulled(self, report: Report, pulls: Mapping[int, Pull], view: View, *, from_replica: bool) -> None:
        """Takes in what a worker pulled: once, by its new owner, and as much as had to be shipped."""
        for bin_ in report.moves.bins:
            pull, now = pulls.get(bin_), self._current
            if pull is None or pull.target != report.worker or self._location[bin_] != pull.source:
                self._wrong(
                    f"worker {report.worker} pulls bin {bin_} in epoch {view.epoch}, which its plan does not say"
                )
            elif now is not None:
                now.moved[bin_] += 1
                shown = view.replicas.get((bin_, report.worker))
                if from_replica and shown is not None:
                    now.deltas.append(Delta(bin_, shown, view.epoch - 1))
                elif not self._shared:
                    now.must_bytes += int(view.size[bin_])
            if view.routing[bin_] == report.worker:  # it had been routed there before
                self.moves.append((view.epoch, bin_, now.id if now else ""))
        if self._current is not None:
            self._current.moved_bytes += report.moves.bytes
            self._current.network_bytes += sum(size for _, size, _ in report.moves.network)
        elif report.moves.bins:
            self._wrong(f"bin {report.moves.bins[0]} moves in epoch {view.epoch}, but no migration is under way")

    def _state_after(self, record: EpochRecord) -> None:
        epoch = record.written.epoch
        self._routing, self._location = record.written.plan.routing.copy(), self._location.copy()
        self._queued = np.zeros_like(self._queued)
        for pair in record.written.forgotten:
            self._replicas.pop(pair, None)
        for report in record.reports:
            self._location[report.moves.bins] = report.worker
            for bin_ in report.moves.bins:
                self._replicas.pop((bin_, report.worker), None)
            self._replicas |= {(bin_, report.worker): at for bin_, at in report.replication.replicas}
            self._size[report.sizes[0]] = report.sizes[1]
            self._queued[report.queues.lengths[0]] = report.queues.lengths[1]
            self.applied += report.records
        self.waits += [(epoch, bin_) for bin_ in np.flatnonzero(self._queued).tolist()]

    def _end(self, event: MigrationDone, end_us: int) -> None:
        now = next((m for m in self.migrations.values() if m.id == event.id), None)
        if now is None or event.superseded:
            return  # `_begin` of the one that takes its place has ended it
        now.done, now.done_us = event.epoch, end_us
        if (self._location != self._goal).any() or (self._routing != self._goal).any():
            self._wrong("it is said to be done, but bins are not at their goal")
        if now.moved != now.must:
            wrong = sorted((now.moved - now.must) + (now.must - now.moved))
            self._wrong(f"{len(wrong)} bins did not move as often as they had to, first bin {wrong[0]}")
        self._current = None

    def _wrong(self, sentence: str) -> None:
        self.problems.append((self._current.label if self._current else "", sentence))

    def close(self) -> None:
        """Judges what can be judged only at the end: migrations that are not done, or took too long."""
        for migration in self.migrations.values():
            if not completes(self._name):
                if migration.moved:
                    self.problems.append((migration.label, f"{len(migration.moved)} bins moved without a mechanism"))
            elif migration.done < 0:
                self.problems.append((migration.label, f"it is not done after {migration.epochs} epochs"))
            elif migration.superseded and migration.moved - migration.must:
                self.problems.append((migration.label, "bins moved that were in their place"))
            if completes(self._name) and migration.epochs > migration.bound:
                self.problems.append(
                    (migration.label, f"it took {migration.epochs} epochs, more than {migration.bound}")
                )
        for label in self._goals.keys() - self.migrations.keys():
            self.problems.append((label, "it never began"))
