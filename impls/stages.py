"""The stages of a chain, and what each of them reads. Pure."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from impls.errors import UsageError

_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")


def _as_it_is(frame: Any) -> Any:
    return frame


@dataclass(frozen=True)
class Stage:
    """A keyed operator of a chain.

    Attributes:
        name: of letters, digits, - and _; it names the stage's folders and its topic.
        start: `impls.stream`, `impls.transform_with_state` or `impls.aggregate`, with the arguments that are the
            stage's own, such as key and operator, as functools.partial has them.
        workers: those that begin.
        schema: of a result, as the next stage reads it, DDL or StructType; a chain's last stage needs none.
        select: from what the stage reads, a DataFrame for each of its inputs, to the first argument of `start`, as in
            lambda frame: frame.groupBy("user"), or lambda one, other: one.union(other).
        options: further ones of `start` for this stage.
        inputs: names of stages before this one, whose results it reads (`impls.results_of`), or of the chain's inputs;
            by default the stage before it, or the chain's first input.
    """

    name: str
    start: Callable[..., Any]
    workers: int
    schema: Any = None
    select: Callable[..., Any] = _as_it_is
    options: Mapping[str, Any] = field(default_factory=dict)
    inputs: Sequence[str] = ()


def inputs_of(name: str, stages: Sequence[Stage], sources: Sequence[str]) -> dict[str, list[str]]:
    """Returns by the name of each stage what it reads: stages before it, or inputs of the chain.

    Raises:
        UsageError: a name cannot be used, or two have it; an input is not there; nobody reads a stage.
    """
    if len(stages) < 2:
        raise UsageError("A chain has two stages at least: start a single one by itself.")
    names = [*sources, *(stage.name for stage in stages)]
    for word in (name, *names):
        if not _NAME.fullmatch(word):
            raise UsageError(f"The name {word!r} cannot be that of a topic: use up to 80 letters, digits, - and _.")
    if twice := next((one for one in names if names.count(one) > 1), None):
        raise UsageError(f"Two stages or inputs have the name {twice!r}.")
    found, known = dict[str, list[str]](), list(sources)
    for stage in stages:
        found[stage.name] = list(stage.inputs) or [known[-1] if found else known[0]]
        if strange := next((one for one in found[stage.name] if one not in known), None):
            raise UsageError(f"The stage {stage.name} reads {strange!r}: name one of {', '.join(known)}.")
        known.append(stage.name)
    read = {one for inputs in found.values() for one in inputs}
    if idle := next((one for one in known[:-1] if one not in read), None):
        raise UsageError(f"Nobody reads {idle!r}: name it among the inputs of a stage, or leave it out.")
    return found
