"""The running query as its user sees it: rescale, rebalance, status, stop."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from impls.closing import closed_on_error, end_all
from impls.driver.autoscaling import Autoscaled, Source
from impls.driver.checkpoint import Checkpoint
from impls.driver.control import Answerer, ControlServer, Listener
from impls.driver.epochs import QueryEnded, StopNeeded
from impls.driver.history import Recorded
from impls.driver.lookups import Looked, StateReads
from impls.driver.observed import Observed, OnEvent
from impls.driver.pipeline import Changeable, PipelineChanges
from impls.errors import StateError, UsageError
from impls.placement import goal as placement_goal
from impls.placement.movement import moved_against_minimum
from impls.protocol.arrays import check_bins, check_goal
from impls.protocol.seats import hosts_of, numbers_on, renumbered

_LOG = logging.getLogger(__package__)
_STOP_DEADLINE_S = 60.0
_POLL_S = 0.05

RunQuery = Callable[[Callable[[Any, int], None], Callable[[], None]], Exception | None]
"""Runs a query until it ends: calls the second function when it has started, and the first with (batch, epoch).

Returns the signal or error with which the first one ended it, None when it ended by itself; raises StateError when
something else ended it.
"""


class StreamHandle(Changeable, Autoscaled, Observed, Looked, Recorded):
    """A stateful query that can be rescaled while it runs; all methods may be called from any thread.

    A supervisor thread runs the query, and starts it again after a stop that the mechanism asked for.

    Attributes:
        wants_restart: the query has ended because the mechanism asks for a new Spark session: whoever made this handle
            is to stop the session, start another and start the query on the same checkpoint.
    """

    def __init__(
        self,
        run: RunQuery,
        changes: PipelineChanges,
        checkpoint: Checkpoint,
        policy: str,
        on_event: OnEvent | None,
        *,
        source: Callable[[], Source | None] | None = None,
        reads: Callable[[], StateReads] | None = None,
        end: Callable[[], None] = lambda: None,
        listen: Callable[[Answerer], Listener] | None = None,
    ):
        """Starts the query; `end` frees, when it has ended, what its executor holds.

        `source` returns what tells how far its source goes; None for a query that cannot be autoscaled. `reads` makes
        what reads keys. `listen` gets what answers a request, before the first epoch, and gives it requests from
        elsewhere.
        """
        Changeable.__init__(self)
        self._on_event = on_event or (lambda _kind, _fields: None)
        Autoscaled.__init__(self, changes.driver, checkpoint, source, self._on_event)
        Looked.__init__(self, reads)
        Recorded.__init__(self, changes.driver, checkpoint.own)
        Observed.__init__(self, changes.driver.metrics, {"query": checkpoint.name})
        self._run, self._driver, self._checkpoint, self._policy = run, changes.driver, checkpoint, policy
        self.changes, self._end = changes, end
        self.wants_restart = False
        self._listener: Listener | None = None
        with closed_on_error(self._history):
            # state is for whoever can enter the checkpoint's folder, and not for a topic
            self._control = ControlServer(checkpoint.own, lambda one: self.answer_state(one) or self._answer(one))
            if listen is not None:
                with closed_on_error(self._control):
                    self._listener = listen(self._answer)
        self._begin(self._supervise, "rescale-supervisor")

    def rescale(self, workers: int, *, policy: str | None = None, hosts: Sequence[str] | None = None) -> str:
        """Asks for `workers` workers and returns the command's id once the command is durable.

        On a cluster `hosts` names those that are to have workers, as in `status()`: workers there go on, and the bins
        of the others move to them, so that these hosts can be taken away. Workers keep their numbers.

        Raises UsageError for fewer than 1 worker, more workers than bins or than the session can run in real time, an
        unknown policy, or an unknown host.
        """
        if workers < 1:
            raise UsageError(f"A query needs at least 1 worker, not {workers}.")
        check_bins(self._driver.controller.bins, workers)
        label = f"rescale to {workers} workers"

        def goal() -> NDArray[np.int32]:
            if hosts is None:
                return self._place(policy, workers)
            controller = self._driver.controller
            owners = controller.commanded.tolist()
            numbers = numbers_on(workers, hosts, controller.homes, owners, self._driver.servers)
            return np.array(numbers, np.int32)[self._place(policy, workers, numbers)]

        named = "" if hosts is None else f" on {', '.join(hosts)}"
        return self._command("rescale", goal, label + named, tuple(hosts or ()))

    def moves(self, workers: int) -> bool:
        """Returns whether a rescale to `workers` workers would move a bin."""
        with self._driver.locked() as controller:
            return not np.array_equal(self._place(None, workers), controller.commanded)

    def rebalance(
        self, goal: NDArray[np.int32] | None = None, *, policy: str | None = None, label: str = "rebalance"
    ) -> str:
        """Asks for an assignment, shape (bins,), and returns the command's id once the command is durable.

        Without a goal it is the policy's for the workers there are and the rates measured. Raises UsageError when the
        shape is wrong, a worker is no number from 0 to 65534 or more than can run, or the policy is unknown.
        """
        if goal is None:
            return self._command(
                "rebalance", lambda: self._place(policy, 1 + int(self._driver.controller.commanded.max())), label
            )
        checked = check_goal(goal, self._driver.controller.bins)
        return self._command("rebalance", lambda: checked, label)

    def status(self) -> dict[str, Any]:
        """Returns epoch, workers, bins of each, misplaced bins, queued records, and whether a migration runs.

        Also the number of records that were set aside since the start (`on_error="skip"`).
        Where it is autoscaled also the policy, its bounds and its last decision.
        On a cluster also the hosts with the workers that ran there last; what became of a control topic's commands.
        With event time also the watermark, and whether all that the input so far gives rise to has been done (settled).
        """
        with self._driver.locked() as controller:
            clock, homes = controller.clock, dict(controller.homes)
            known = {
                "epoch": self._driver.last_epoch,
                "generation": self._checkpoint.generation,
                "workers": int(controller.routing.max()) + 1,
                "bins": np.bincount(controller.location).tolist(),
                "misplaced": controller.misplaced,
                "queued": int(controller.queued.sum()),
                "migrating": self._driver.migrating,
                "versions": {str(v): n for v, n in enumerate(np.bincount(controller.changing.required).tolist()) if n},
                **({} if clock is None else {"watermark": clock.watermark, "settled": clock.settled}),
            }
        return {
            **known,
            "running": not self._ended.is_set(),
            "refused": self._driver.metrics.counts()["refused"],
            **({} if self._listener is None else {"control": self._listener.status()}),
            **hosts_of(homes, self._driver.servers),
            **self.autoscale_status(),
        }

    def stop(self) -> None:
        """Ends the query between two epochs and frees the checkpoint; raises what the query failed with, if it did.

        Raises StateError when no epoch ends within 60 seconds.
        """
        try:
            self._driver.end()
        except Exception as error:  # of what makes the next epoch come sooner: it comes all the same
            _LOG.error("The query %s is to end and could not be woken: %s", self._checkpoint.name, error)
        self._await_stopped(f"The query {self._checkpoint.name}", _STOP_DEADLINE_S)

    @property
    def goal(self) -> NDArray[np.int32]:
        """The assignment last commanded, shape (bins,)."""
        with self._driver.locked() as controller:
            return controller.commanded.copy()

    def await_migration(self, timeout_s: float) -> bool:
        """Waits until no migration is under way and returns whether that came about in time.

        Raises what the query fails with meanwhile.
        """
        end = time.monotonic() + timeout_s
        while self._migrating() and not self.await_end(_POLL_S):
            if time.monotonic() > end:
                return False
        return not self._migrating()

    @property
    def measured(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Records per epoch (mean over the last epochs) and bytes of state of each bin, shapes (bins,)."""
        with self._driver.locked() as controller:
            view = controller.view(self._driver.last_epoch + 1)
        return view.rate, view.size

    def _place(self, policy: str | None, workers: int, numbers: Sequence[int] | None = None) -> NDArray[np.int32]:
        """Returns a policy's goal for 0..workers-1, or for workers of other numbers, by their places there.

        Whoever calls it has the controller's lock, so that the goal is of what the command changes.
        """
        rates, sizes = self.measured
        current = self._driver.controller.commanded
        current = current if numbers is None else renumbered(current, numbers)
        return placement_goal(policy or self._policy, current, workers, rates=rates, sizes=sizes)

    def _command(
        self,
        kind: Literal["rescale", "rebalance"],
        goal: Callable[[], NDArray[np.int32]],
        label: str,
        hosts: tuple[str, ...] = (),
    ) -> str:
        with self._driver.locked() as controller:
            wanted, before = goal(), controller.commanded
            moved = moved_against_minimum(controller.location, wanted, controller.size)
            command = self._driver.command(kind, wanted, label, hosts)
        self._driver.metrics.plan(moved.bins, moved.size)
        self._history.command(command, before, moved, self._driver.metrics.p99_ms())
        self._on_event("command", {"id": command.id, "label": label, "moves": asdict(moved)})
        return command.id

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            return self._carried_out(request)
        except UsageError as error:
            _LOG.info("The request %r is refused: %s", request["do"], error)
            raise

    def _carried_out(self, request: dict[str, Any]) -> dict[str, Any]:
        match request["do"]:
            case "status":
                return self.status()
            case "rescale":
                return {
                    "id": self.rescale(
                        int(request["workers"]), policy=request.get("policy"), hosts=request.get("hosts")
                    )
                }
            case "rebalance":
                goal = request.get("goal")  # without one the policy places by what was measured
                return {"id": self.rebalance(None if goal is None else np.array(goal))}
            case "stop":
                self._driver.end()
                return {"stopping": True}
        answer = self.answer_change(request) or self.answer_watch(request)
        if answer is None:
            known = "status, watch, rescale, rebalance, stop, pipeline, replace, insert, remove or change"
            raise UsageError(f"The request {request['do']!r} is unknown: {known}.")
        return answer

    def _supervise(self) -> None:
        try:
            while self._run_once():
                pass
        except Exception as error:
            _LOG.error("The query %s has failed: %s", self._checkpoint.name, error)
            self._failure = error
        except BaseException as error:  # such as the SystemExit of a user's function, which ends a thread in silence
            self._failure = StateError(f"The query was ended by {type(error).__name__}: {error}")
        finally:
            self._close()

    def _close(self) -> None:
        """Frees all that the query holds; the first error is its failure if it has none, and stops nothing else."""
        listener = () if self._listener is None else (self._listener.close,)
        ends = (
            self._take_no_more,
            self.end_autoscaling,
            self.end_serving,
            self._control.close,
            *listener,
            self._end,
            self._history.close,
            self._checkpoint.close,
        )
        try:
            error = end_all(ends, f"query {self._checkpoint.name}")
            self._failure = self._failure or error
        finally:
            self._ended.set()

    def _take_no_more(self) -> None:
        with self._driver.locked():  # whoever has it may still write into the journals
            self._driver.ending = True

    def _run_once(self) -> bool:
        """Runs the query until it ends and returns whether to start it again."""
        started = {"generation": self._checkpoint.generation}
        name, begin = self._checkpoint.name, self._driver.last_epoch + 1
        _LOG.info("The query %s begins with epoch %s, generation %s.", name, begin, started["generation"])
        signal = self._run(self._driver.run_epoch, lambda: self._on_event("query_start", started))
        _LOG.info("The query %s has ended behind epoch %s.", name, self._driver.last_epoch)
        self._on_event("query_stop", {})
        if isinstance(signal, StopNeeded):
            self._driver.stopped(signal.epoch)
            self.wants_restart = signal.what == "application"
            return not self.wants_restart
        if signal is not None and not isinstance(signal, QueryEnded):
            raise signal
        return False
