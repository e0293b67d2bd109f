"""What state a native query has, and whether a query of this project can go on with it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from impls.errors import UsageError

__all__ = ["AGGREGATION", "TRANSFORM_WITH_STATE", "StateOperator", "the_operator"]

AGGREGATION, TRANSFORM_WITH_STATE = "aggregation", "transformWithState"
_KINDS = {
    "stateStoreSave": AGGREGATION,
    "transformWithStateExec": TRANSFORM_WITH_STATE,
    "transformWithStateInPySparkExec": TRANSFORM_WITH_STATE,
    "transformWithStateInPandasExec": TRANSFORM_WITH_STATE,
}
_REFUSED = {  # by Spark's short names of operators
    "symmetricHashJoin": "a join of two streams",
    "dedupe": "dropDuplicates",
    "dedupeWithinWatermark": "dropDuplicatesWithinWatermark",
    "sessionWindowStateStoreSaveExec": "an aggregation by session windows",
    "flatMapGroupsWithState": "mapGroupsWithState or flatMapGroupsWithState",
    "applyInPandasWithState": "applyInPandasWithState",
    "globalLimit": "a limit",
}


@dataclass(frozen=True, slots=True)
class StateOperator:
    """The one stateful operator of a native query: its kind, its number, its partitions, and what Spark notes of it."""

    kind: str
    number: int
    partitions: int
    properties: dict[str, Any]


def the_operator(found: Sequence[StateOperator], name: str) -> StateOperator:
    """Returns the one operator of a query among those that its metadata lists, whose `kind` is Spark's name of them.

    Raises:
        UsageError: there is none, there are several, or it is one that cannot be adopted.
    """
    numbers = {operator.number for operator in found}
    if not numbers:
        raise UsageError(
            f"The checkpoint {name} has no metadata of a stateful operator: the query is stateless, or was last run by "
            "a Spark before 4.0; run a batch of it with Spark 4.0 or newer first."
        )
    if len(numbers) > 1:
        kinds = ", ".join(sorted({operator.kind for operator in found}))
        raise UsageError(
            f"The query of {name} has {len(numbers)} stateful operators ({kinds}): only one can be adopted."
        )
    first = found[0]
    if first.kind in _REFUSED:
        raise UsageError(
            f"The state of {name} is that of {_REFUSED[first.kind]}, which cannot be adopted: only groupBy().agg() and "
            "transformWithState can."
        )
    if first.kind not in _KINDS:
        raise UsageError(f"The state of {name} is that of an operator that is not known here: {first.kind}.")
    return StateOperator(_KINDS[first.kind], first.number, first.partitions, first.properties)
