"""Changes of a running query's pipeline: another operator or step, a step put in or taken out."""

import threading
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from impls.driver.codes import Codes, Offer
from impls.driver.driver import Driver
from impls.driver.observed import RunningQuery
from impls.errors import UsageError
from impls.operators.base import Operator
from impls.operators.pipeline import Contents, contents_of, inserted, removed, replaced, steps_of
from impls.operators.steps import Step
from impls.protocol.changing import Changing
from impls.protocol.versions import BUDGET_BYTES, Version

INITIAL = "initial"
_PLACE_COLUMNS = 5
_POLL_S = 0.05

Pickled = Callable[[Contents], bytes]
Remake = Callable[[Operator], Contents]
"""Makes a version of the pipeline that it replaces; raises UsageError when that cannot be changed so."""


def _pipeline_at(codes: Codes, versions: Mapping[int, Version], number: int, first: Operator) -> Operator:
    """Returns a version's pipeline; raises UsageError when its code is missing, damaged or cannot be loaded."""
    return first if number == 0 else _loaded(codes.get(versions[number].code)).operator


def _loaded(raw: bytes) -> Contents:
    try:
        return contents_of(raw)
    except Exception as error:
        raise UsageError(f"The code of the version cannot be loaded: {type(error).__name__}: {error}.") from error


class _BaseMoved(Exception):  # noqa: N818 - a signal to begin again, not a failure
    """The version that a change was made from is no longer the one it would replace."""


@dataclass(frozen=True)
class PipelineChanges:
    """Makes changes of a query's pipeline durable, one after the other: each is made from the one before it.

    Attributes:
        driver: the query's.
        first: version 0.
        pickled: makes code of a version's contents.
        columns: that records have: bin, partition, offset, time, key, and those of the input that are kept.
        shared: workers share a store, in which no state can take another shape.
    """

    driver: Driver
    first: Operator
    pickled: Pickled
    columns: tuple[str, ...]
    shared: bool = False
    _one: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def make(
        self, remake: Remake, label: str, *, lazy: bool = False, budget_bytes: int = BUDGET_BYTES, repairs: int = 0
    ) -> str:
        """Makes a version durable and returns the change's id; raises UsageError when it cannot be one.

        `remake` makes it from the last version, or from the one before a version to repair.
        """
        if budget_bytes < 1:
            raise UsageError(f"The budget must be at least 1 byte, not {budget_bytes}.")
        about = {"label": label, "lazy": lazy, "budget_bytes": budget_bytes, "repairs": repairs}
        with self._one:
            while True:  # again each time that an epoch has meanwhile refused the version that this one was made from
                try:
                    return self._made(remake, about)
                except _BaseMoved:
                    continue

    def _made(self, remake: Remake, about: dict[str, Any]) -> str:
        with self.driver.locked() as controller:
            parent = _parent(controller.changing, about["repairs"])
            versions = dict(controller.changing.versions)
        contents = remake(_pipeline_at(self.driver.codes, versions, parent, self.first))
        self._check(contents, about["repairs"])
        raw = self.pickled(contents)
        _loaded(raw)
        self.driver.codes.keep_as(INITIAL, self.pickled(Contents(self.first)))
        ways = {"migrates": contents.migrate is not None, "returns": contents.back is not None}
        return self.driver.change(partial(_version, self.driver.codes.keep(raw), parent, about | ways)).id

    def _check(self, contents: Contents, repairs: int) -> None:
        """Raises UsageError when the contents cannot be a version of this query."""
        operator = contents.operator
        missing = [column for column in operator.columns if column not in self.columns]
        if missing:
            kept = ", ".join(self.columns[_PLACE_COLUMNS:]) or "none"
            raise UsageError(
                f"The pipeline reads the column {missing[0]!r}, but the query keeps {kept}: name it in `columns` when "
                "you start the query."
            )
        if contents.migrate is not None and (self.shared or not operator.keyed.has_entries):
            what = "A store that all workers share" if self.shared else type(operator.keyed).__name__
            raise UsageError(f"{what} has no entries whose values `migrate` could turn.")
        if repairs and contents.migrate is None:
            raise UsageError(
                f"State that had to stay at version {repairs} has another shape: give the repaired `migrate`."
            )

    def describe(self) -> list[dict[str, Any]]:
        """Returns the versions: number, what it changes, steps, operator, and the bins that run under it."""
        with self.driver.locked() as controller:
            required, versions = controller.changing.required.copy(), dict(controller.changing.versions)
        bins = np.bincount(required, minlength=1 + max(versions, default=0)).tolist()
        out = []
        for number in (0, *versions):
            pipeline = _pipeline_at(self.driver.codes, versions, number, self.first)
            label = versions[number].label if number else "as the query began"
            steps, name = [step.name for step in steps_of(pipeline)], type(pipeline.keyed).__name__
            out.append({"version": number, "label": label, "steps": steps, "operator": name, "bins": bins[number]})
        return out


def _version(code: str, parent: int, about: dict[str, Any], changing: Changing) -> Version:
    """Returns the version that the code was made for; raises _BaseMoved when another than its parent is the last."""
    if _parent(changing, about["repairs"]) != parent:
        raise _BaseMoved
    return Version(1 + max(changing.versions, default=0), parent, code, **about)


def _parent(changing: Changing, repairs: int) -> int:
    """Returns the version that a change builds on; raises UsageError when it is to repair what needs no repairing."""
    if not repairs:
        return changing.latest
    if changing.active:
        raise UsageError(f"Another change is under way: version {repairs} can be repaired when that has ended.")
    if not (changing.required == repairs).any() or (changing.required == repairs).all():
        raise UsageError(f"Version {repairs} is none at which bins had to stay while others went back.")
    return changing.versions[repairs].parent


class Changeable(RunningQuery):
    """What a running query's handle offers for its pipeline; each change returns its id once it is durable.

    A change is first tried on records whose effects are thrown away. What fails there is refused, and the query goes on
    as it was; what fails in the first epochs after that is taken back. `change` says which of this has come about.
    """

    changes: PipelineChanges

    def replace(
        self,
        by: Operator | Step,
        *,
        migrate: Callable[..., Any] | None = None,
        back: Callable[..., Any] | None = None,
        lazy: bool = False,
        budget_bytes: int = BUDGET_BYTES,
        repairs: int = 0,
        mends: int = 0,
    ) -> str:
        """Replaces the operator, or the step of the same name.

        Args:
            by: the new one; an operator must keep its state where the old one does (`Operator.identity`).
            migrate: a value of state to one of the new operator's, None for one that is to go; without it values are
                read as they are. Operators with event time call it with (value, name of the state).
            back: the way back, which lets a failing change be taken back also where state has changed.
            lazy: all records come under the new version at once, and state is turned when a record, or the budget,
                comes to its bin; by default bin after bin, state and records together.
            budget_bytes: most bytes of state that each worker turns in an epoch without need, one bin at least.
            repairs: a refused version whose `migrate` failed when some bins had switched and could not go back. Their
                state is taken as it is for the new operator's; the other bins switch by the new `migrate`.
            mends: the earlier name of `repairs`, which goes with the next version.

        Raises:
            UsageError: it cannot replace what there is, or cannot be pickled; the query goes on as it was.
        """
        if mends:
            warnings.warn("replace(mends=...) is now replace(repairs=...).", FutureWarning, stacklevel=2)
        repairs = repairs or mends
        name = by.name if isinstance(by, Step) else type(by.keyed).__name__

        def remake(base: Operator) -> Contents:
            return Contents(replaced(base, by), migrate, back)

        return self.changes.make(remake, f"replace {name}", lazy=lazy, budget_bytes=budget_bytes, repairs=repairs)

    def insert(self, step: Step, *, before: str | None = None) -> str:
        """Puts a step in front of another one, or behind all steps; raises UsageError as `replace` does."""
        return self.changes.make(lambda base: Contents(inserted(base, step, before)), f"insert {step.name}")

    def remove(self, name: str) -> str:
        """Takes a step out; raises UsageError when there is none of that name."""
        return self.changes.make(lambda base: Contents(removed(base, name)), f"remove {name}")

    def pipeline(self) -> list[dict[str, Any]]:
        """Returns the versions of the pipeline: number, label, steps, operator, and the bins that run under each."""
        return self.changes.describe()

    def change(self, id_: str) -> dict[str, Any]:
        """Returns state ("waits", "trial", "switch", "back", "done" or "refused"), version and why of a change."""
        with self.changes.driver.locked() as controller:
            found = controller.changing.outcome(id_)
        if found is None:
            raise UsageError(f"There is no change {id_}.")
        return {"id": id_, "state": found.state, "version": found.version, "why": found.why}

    def await_change(self, id_: str, timeout_s: float) -> dict[str, Any]:
        """Waits until a change is done or refused, or the query has ended, or the time is over; returns `change`.

        Raises what the query fails with meanwhile.
        """
        until = time.monotonic() + timeout_s
        while self.change(id_)["state"] not in {"done", "refused"} and time.monotonic() < until:
            if self.await_end(_POLL_S):
                break
        return self.change(id_)

    def answer_change(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """Answers a request of another process about the pipeline, None for one about something else."""
        match request["do"]:
            case "pipeline":
                return {"versions": self.pipeline()}
            case "change":
                return self.change(request["id"])
            case "remove":
                return {"id": self.remove(request["name"])}
            case "insert":
                if not isinstance(step := self._offered(request).by, Step):
                    raise UsageError(f"The code to insert is a {type(step).__name__} and no step.")
                return {"id": self.insert(step, before=request.get("before"))}
            case "replace":
                given = self._offered(request)
                how = {name: request[name] for name in ("lazy", "budget_bytes", "repairs", "mends") if name in request}
                return {"id": self.replace(given.by, migrate=given.migrate, back=given.back, **how)}
        return None

    def _offered(self, request: dict[str, Any]) -> Offer:
        """Returns the code that a request names; raises UsageError where it is not offered."""
        return self.changes.driver.offers.load(request.get("offered"))
