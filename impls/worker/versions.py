"""Versions of the pipeline in a worker: their code, the version of each bin, states that take another shape, trials."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from impls.errors import StateError
from impls.faults import fault
from impls.operators.base import Effects, Input, Operator
from impls.operators.blame import Blame, Place, blamed, raise_store_error
from impls.operators.pipeline import Contents, contents_of
from impls.protocol.order import EpochOrder
from impls.protocol.plan import WrittenPlan
from impls.protocol.versions import Versions, path_between, shape_of, way_back
from impls.store.records import Results
from impls.store.state import BinState
from impls.worker.query import Task
from impls.worker.refused import Again, SetAside, blame_text, to_set_aside


class PipelineError(Again):
    """A version of the pipeline has failed on a record or a value of state.

    Attributes:
        version: its number.
        bin: the bin whose state its `back` has failed on; None for another failure.
        records: the records that it has failed on, None where they are not known.
    """

    def __init__(self, version: int, text: str, bin_: int | None = None, records: Blame | None = None):
        super().__init__(text)
        self.version, self.bin, self.records = version, bin_, records


class Running:
    """The versions under which the bins of one transaction run; a worker's task may have refused one of them.

    Attributes:
        state: of the bins.
        required: int32, shape (B,): the version of each bin.
        turned: [bin, shape] of states that took another shape.
    """

    def __init__(self, task: Task, state: BinState, versions: Versions):
        self.state = state
        self._task, self._plan = task, versions
        self._codes = {code.version.number: code for code in task.order.codes}
        self._versions = {number: code.version for number, code in self._codes.items()}
        self._migrates = any(version.migrates for version in self._versions.values())
        self.turned: list[list[int]] = []
        self.required = versions.required if task.refused is None else self._without(task.refused[0])

    @classmethod
    def of_standbys(cls, task: Task, state: BinState) -> "Running":
        """Returns those of copies, which take no shape unless a record comes: the worker's own bins are not there."""
        versions = task.order.written.versions
        assert versions is not None, "the plan names versions"
        return cls(task, state, replace(versions, refits=()))

    def _without(self, refused: int) -> NDArray[np.int32]:
        """Returns the versions of bins where one is refused: its parent, unless their state cannot go back."""
        required, parent = self._plan.required.copy(), self._versions[refused].parent
        target = shape_of(parent, self._versions)
        for bin_ in np.flatnonzero(required == refused).tolist():
            shape = self.state.shape(bin_)
            required[bin_] = parent if way_back(shape, target, self._versions) else shape
        for bin_, _ in self._task.stuck:
            required[bin_] = self.state.shape(bin_)
        return required

    def operator(self, number: int) -> Operator:
        """Returns a version's pipeline; raises PipelineError when its code cannot be loaded."""
        if number == 0:
            return self._task.spec.operator
        return self._contents(number).operator

    def _contents(self, number: int) -> Contents:
        try:
            return contents_of(self._codes[number].raw)
        except Exception as error:
            raise PipelineError(number, f"The code of version {number} cannot be loaded: {_words(error)}.") from error

    def run(self, inputs: Sequence[Input]) -> Effects:
        """Runs inputs, oldest first, those of each bin under its version; raises PipelineError when one fails."""
        first = self._task.spec.operator
        touched = _touched(self.state, inputs, processing=first.processing)
        self.fit(touched)
        anywhere = first.event_time is not None  # an operator may have timers that this does not know of
        versions = np.unique(self.required if anywhere else self.required[touched]).tolist()
        parts: list[Effects] = []
        for number in versions:
            own = inputs if len(versions) == 1 else [input_of(one, self.required == number) for one in inputs]
            operator = self.operator(number)
            with self.blamed(number):
                parts.append(operator.run(self.state, own))
        if len(parts) < 2:
            return parts[0] if parts else Effects()
        late, fired = sum(part.late for part in parts), sum(part.fired for part in parts)
        return Effects(Results.joined([part.results for part in parts]), late, fired)

    @contextmanager
    def blamed(self, number: int) -> Iterator[None]:
        """Raises an operator's error, OperatorError included, as PipelineError of its version, except of version 0.

        What the store raises goes through: damage, a full map, a store that is away.
        """
        try:
            yield
        except PipelineError:
            raise
        except Exception as error:
            raise_store_error(error)
            if number == 0:
                raise
            text = f"Version {number} has failed: {_words(error)}."
            raise PipelineError(number, text, records=blamed(error)) from error

    def fit(self, bins: Iterable[int]) -> None:
        """Gives the states of bins, and of those whose turn it is here, the shapes of their versions."""
        if not self._migrates:
            return
        routing = self._task.order.written.plan.routing
        mine = [bin_ for bin_ in self._plan.refits if int(routing[bin_]) == self._task.worker]
        if self._task.refused is not None:  # what goes back goes on
            mine = [bin_ for bin_ in mine if self._plan.required[bin_] != self._task.refused[0]]
        for bin_ in dict.fromkeys([*bins, *mine]):
            self._fit(bin_, shape_of(int(self.required[bin_]), self._versions))

    def _fit(self, bin_: int, shape: int) -> None:
        had = self.state.shape(bin_)
        if had == shape:
            return
        if not way_back(had, shape, self._versions):  # the driver does not know of its shape yet
            self.required = self.required.copy()
            self.required[bin_] = had
            return
        path = path_between(had, shape, self._versions)
        for number, direction in path:
            self._turn(bin_, number, back=direction == "back")
        if not path:
            self.state.turn(bin_, shape, None)
        self.turned.append([bin_, shape])
        if self._plan is self._task.order.written.versions:  # not in a trial, which is thrown away
            reach("during-refit", self._task)

    def _turn(self, bin_: int, number: int, *, back: bool) -> None:
        """Turns a bin's state by a version's `migrate`, or by its way back."""
        version, contents = self._versions[number], self._contents(number)
        source, target = self.operator(version.parent).keyed, contents.operator.keyed
        function, shape = contents.migrate, number
        if back:
            source, target, function = target, source, contents.back
            shape = shape_of(version.parent, self._versions)
        if function is None:
            raise StateError(
                f"The state of bin {bin_} has the shape of version {number}, from which no way leads back."
            )

        def convert(key: bytes, value: bytes) -> bytes | None:
            try:
                return target.turned(key, value, source, function)
            except Exception as error:
                name = "back" if back else "migrate"
                where = f"{name} of version {number} on key {key!r} in bin {bin_}"
                raise PipelineError(number, f"{where} has failed: {_words(error)}.", bin_ if back else None) from error

        self.state.turn(bin_, shape, convert)


def _touched(state: BinState, inputs: Iterable[Input], *, processing: bool) -> list[int]:
    """Returns the bins for which inputs have a record, or a timer that is due, ascending."""
    bins: set[int] = set()
    for one in inputs:
        if one.records is not None:
            bins |= set(np.unique(one.records.column("bin").to_numpy()).tolist())
        until = one.clock.now if processing and one.clock is not None else one.watermark
        if until is not None:
            bins |= set(state.bins_with_timers(one.bins, until))
    return sorted(bins)


def input_of(one: Input, mask: NDArray[np.bool_]) -> Input:
    """Returns the part of an input that some bins get, bool of shape (B,)."""
    records = one.records
    own = None if records is None else records.filter(pa.array(mask[records.column("bin").to_numpy()]))
    return replace(one, bins=one.bins & mask, records=own)


def without(task: Task, error: Again) -> Task:
    """Returns a task without the record or version that has failed; raises StateError when both must stay.

    A bin whose state cannot go back, as `back` fails on it, stays with the version, in whose shape it is.
    """
    if isinstance(error, SetAside):
        return _without_records(task, error.places) if error.places else replace(task, doubtful=True)
    assert isinstance(error, PipelineError), "a record or a version is to be left out"
    versions, refused = task.order.written.versions, (error.version, str(error))
    if versions is not None and versions.guarded == error.version:
        if error.bin is not None and error.bin not in dict(task.stuck):
            return replace(task, refused=task.refused or refused, stuck=(*task.stuck, (error.bin, str(error))))
        if task.refused is None:
            suspects = () if error.records is None else error.records.places
            return replace(task, refused=refused, suspects=suspects, before=task)
    if error.records is None:
        if task.spec.on_error == "skip" and not task.careful:
            return replace(task, doubtful=True)
        raise StateError(str(error)) from error
    if not (places := to_set_aside(task, error.records)):
        raise StateError(f"{error} {blame_text(task, error.records)}") from error
    return _without_records(task, places)


def _without_records(task: Task, places: Sequence[Place]) -> Task:
    """Returns a task without records; it refuses no version for those on which its parent fails as well.

    Then only these are left out: what else its parent fails on is for the version to try.
    """
    set_aside, before = (*task.set_aside, *places), task.before
    if before is not None and task.suspects and {*task.suspects} <= {*set_aside}:
        return replace(before, set_aside=(*before.set_aside, *task.suspects))
    return replace(task, set_aside=set_aside)


def still_refused(before: Task | None, order: EpochOrder) -> tuple[int, str] | None:
    """Returns what the task before has refused, if the order still guards that version."""
    refused, versions = None if before is None else before.refused, order.written.versions
    return refused if refused and versions is not None and versions.guarded == refused[0] else None


def refits_of(written: WrittenPlan) -> tuple[int, ...]:
    """Returns the bins whose state is to take another shape in an epoch."""
    return () if written.versions is None else written.versions.refits


def reach(point: str, task: Task) -> None:
    """Lets a test break the process here."""
    fault(point, **task.where)


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".rstrip(".")
