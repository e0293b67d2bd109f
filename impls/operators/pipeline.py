"""A pipeline: steps, a keyed operator, steps. It is an operator itself, and one version of what a query does."""

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from impls.errors import UsageError
from impls.operators.base import Effects, Input, Operator
from impls.operators.blame import Together
from impls.operators.steps import Step
from impls.store.records import Results
from impls.store.state import BinState


@dataclass(frozen=True)
class Contents:
    """What the code of a version holds.

    Attributes:
        operator: the pipeline.
        migrate: turns a value of its parent's state into one of its own, None where values are alike.
        back: the way back, None where there is none.
    """

    operator: Operator
    migrate: Callable[..., Any] | None = None
    back: Callable[..., Any] | None = None


@lru_cache(maxsize=32)
def contents_of(raw: bytes) -> Contents:
    """Returns the contents of a version's code; raises whatever loading it raises."""
    found = pickle.loads(raw)
    if not isinstance(found, Contents):
        raise TypeError(f"it holds a {type(found).__name__} and no pipeline")
    return found


@dataclass(frozen=True)
class Pipeline(Operator):
    """Steps around an operator; what they leave out of its records counts for the watermark all the same."""

    steps: tuple[Step, ...]
    inner: Operator

    def __post_init__(self) -> None:
        names = [step.name for step in self.steps]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise UsageError(f"Two steps of the pipeline have the name {twice[0]!r}.")
        read = dict.fromkeys([*self.inner.columns, *(column for step in self.steps for column in step.columns)])
        object.__setattr__(self, "columns", tuple(read))
        for name in ("key_type", "output_schema", "reads_ranges", "event_time", "processing", "timer_unit"):
            object.__setattr__(self, name, getattr(self.inner, name))

    @property
    def keyed(self) -> Operator:
        """The operator without steps."""
        return self.inner

    def bin_sql(self, key: str, bins: int) -> str:
        """Returns that of the operator."""
        return self.inner.bin_sql(key, bins)

    def identity(self) -> dict[str, Any]:
        """Returns that of the operator: state lies where it says."""
        return self.inner.identity()

    def state_form(self) -> dict[str, Any]:
        """Returns that of the operator."""
        return self.inner.state_form()

    def outside(self, records: pa.Table) -> NDArray[np.bool_] | None:
        """Returns which records have keys that the operator has no state for."""
        return self.inner.outside(records)

    def create(self, bin_: int, bins: int, state: BinState) -> None:
        """Creates a bin as the operator does."""
        self.inner.create(bin_, bins, state)

    def _before(self, records: pa.Table, *, careful: bool) -> pa.Table:
        for step in self.steps:
            if len(records):
                records = step.records(records, careful=careful)
        return records

    def _after(self, results: Results) -> Results:
        for step in self.steps:
            if results.keys:
                results = step.results(results)
        return results

    def run(self, state: BinState, inputs: Sequence[Input]) -> Effects:
        """Runs the operator on what the steps leave of the records, and returns what they leave of the results."""
        left, together = [], Together(careful=state.careful)
        for one in inputs:
            with together:
                records = None if one.records is None else self._before(one.records, careful=state.careful)
                left.append(replace(one, records=records))
        together.check()
        effects = self.inner.run(state, left)
        return replace(effects, results=self._after(effects.results))


def pipeline_of(steps: Sequence[Step], operator: Operator) -> Operator:
    """Returns the pipeline of an operator, which is the operator itself where there are no steps."""
    if not steps:
        return operator
    return Pipeline(tuple(steps), operator)


def steps_of(operator: Operator) -> tuple[Step, ...]:
    """Returns the steps of a pipeline, none for an operator alone."""
    return operator.steps if isinstance(operator, Pipeline) else ()


def inserted(operator: Operator, step: Step, before: str | None) -> Operator:
    """Returns the pipeline with a further step before another one, or behind all; raises UsageError for no such one."""
    steps = list(steps_of(operator))
    at = len(steps) if before is None else _place(operator, before)
    return pipeline_of([*steps[:at], step, *steps[at:]], operator.keyed)


def removed(operator: Operator, name: str) -> Operator:
    """Returns the pipeline without a step; raises UsageError when there is none of that name."""
    at = _place(operator, name)
    return pipeline_of([step for i, step in enumerate(steps_of(operator)) if i != at], operator.keyed)


def replaced(operator: Operator, by: Operator | Step) -> Operator:
    """Returns the pipeline with another operator, or another step in the place of that of its name.

    Raises UsageError when there is no such step, or the operator keeps state elsewhere, or reads another kind of key.
    """
    if isinstance(by, Step):
        at = _place(operator, by.name)
        return pipeline_of([*steps_of(operator)[:at], by, *steps_of(operator)[at + 1 :]], operator.keyed)
    old, new = operator.keyed, by.keyed
    if new.identity() != old.identity() or new.key_type != old.key_type or new.event_time != old.event_time:
        raise UsageError(
            f"{type(new).__name__} cannot replace {type(old).__name__}: its identity, key or event time is another, "
            "so its state would lie elsewhere."
        )
    if new.bin_sql("key", 64) != old.bin_sql("key", 64):
        raise UsageError(f"{type(new).__name__} cannot replace {type(old).__name__}: keys belong to other bins in it.")
    return by if steps_of(by) else pipeline_of(steps_of(operator), by)


def _place(operator: Operator, name: str) -> int:
    names = [step.name for step in steps_of(operator)]
    if name not in names:
        raise UsageError(f"The pipeline has no step {name!r}; it has {', '.join(names) or 'none'}.")
    return names.index(name)
