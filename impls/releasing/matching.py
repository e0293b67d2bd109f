"""The Spark query and the checkpoint that is released to it: what of one is to be as in the other."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from impls.adoption.processors import time_mode_of, variables_of
from impls.adoption.reading import AGGREGATION, KINDS, REFUSED, StateOperator, operators_of, state_frame, struct_of
from impls.aggregation import GROUPING_KEY
from impls.errors import UsageError
from impls.operators import Aggregate
from impls.processor.kept import deleted_variables, kept_settings, kept_variables
from impls.reading.forms import key_schema
from impls.reading.stored import StoredQuery
from impls.releasing.families import Family, ProcessorState, checked
from impls.releasing.frames import aggregates_of, folding
from impls.releasing.reading import Pieces, aggregate_frame, distinct, processor_frame

EVERY_FAMILY = {"_readAllColumnFamilies": "true"}
"""Option of Spark's reader of state: all column families as bytes, as its writer takes them."""


def check_goes_back(stored: StoredQuery) -> None:
    """Raises UsageError for a query that has no twin in Spark."""
    values, key = stored.form["values"], stored.settings["key"]
    if values != "processor" and (values != "aggregates" or key != GROUPING_KEY):
        raise UsageError(
            f"The query of {stored.folder} runs {stored.settings.get('operator', 'an operator')}, which Spark does not "
            "have: impls.transform_with_state and impls.aggregate are what goes back."
        )


def operator_in(template: Path, frame: DataFrame) -> StateOperator:
    """Returns the stateful operator of a Spark query by its template; raises UsageError unless it is one known here."""
    found = operators_of(frame.sparkSession, str(template), 0)
    if not found:
        raise UsageError("The Spark query has no stateful operator, so it takes no state.")
    if len({operator.number for operator in found}) > 1:
        raise UsageError(f"The Spark query has {len(found)} stateful operators, and a query here has one.")
    if found[0].kind not in KINDS:
        raise UsageError(
            f"The Spark query has {REFUSED.get(found[0].kind, found[0].kind)}, and state goes back to "
            "groupBy().agg() and transformWithState only."
        )
    return replace(found[0], kind=KINDS[found[0].kind])


def rows_of(frame: DataFrame, pieces: Pieces, template: Path, state: StateOperator) -> tuple[DataFrame, list[str]]:
    """Returns the rows of the state, see `wide_schema`, and the names of their families.

    Args:
        frame: what the Spark query writes.
        pieces: the state.
        template: what Spark has made of the query.
        state: its operator.

    Raises:
        UsageError: the checkpoint is that of another query.
    """
    spark, form = frame.sparkSession, pieces.stored.form
    read = partial(state_frame, spark, str(template), 0, state.number)
    if state.kind == AGGREGATION:
        return _rows_of_aggregates(frame, pieces, read())
    if form["values"] != "processor":
        raise UsageError("The Spark query has a processor, and the checkpoint's aggregates.")
    variables = {name: variable for name, (variable, _) in variables_of(read, state).items()}
    key = struct_of(read(**EVERY_FAMILY), "partition_key")
    _check_key(key, StructType.fromJson(form["columns"]), folding(frame))
    _check_settings(state, kept_settings(pieces.stored.folder))
    folder = pieces.stored.folder
    deleted = deleted_variables(folder)  # bins in which nothing happened since have rows of them
    kept = {name: one for name, one in kept_variables(folder).items() if name not in deleted}
    made = checked(ProcessorState(key, variables, kept, time_mode_of(state), deleted))
    return processor_frame(spark, pieces, made), [family.name for family in made.families()]


def _check_settings(state: StateOperator, kept: dict[str, str]) -> None:
    """Raises UsageError where the Spark query has another time mode, or output mode, than the checkpoint's."""
    found = {"time_mode": time_mode_of(state), "output_mode": str(state.properties["outputMode"]).lower()}
    for name, value in found.items():
        if kept[name] != value:
            mode = name.replace("_", " ")
            raise UsageError(f"The Spark query has the {mode} {value}, and the checkpoint's {kept[name]}.")


def _rows_of_aggregates(frame: DataFrame, pieces: Pieces, state: DataFrame) -> tuple[DataFrame, list[str]]:
    form = pieces.stored.form
    if form["values"] != "aggregates":
        raise UsageError("The Spark query has aggregates, and the checkpoint's a processor.")
    family = Family("default", struct_of(state, "key"), struct_of(state, "value"))
    operator = Aggregate.of_form({**form, "ansi": False})
    measures = distinct(operator)
    own, wanted = [(measure.function, measure.column) for measure in measures], aggregates_of(frame)
    fold = folding(frame)
    if [(call, fold(column)) for call, column in wanted] != [(call, fold(column)) for call, column in own]:
        raise UsageError(f"The Spark query has the aggregates {_calls(wanted)}, and the checkpoint's {_calls(own)}.")
    _check_key(family.key, key_schema(form["keys"]), fold)
    kept = [(buffer.name, buffer.type) for measure in measures for buffer in measure.buffers]
    found = [(field.name, field.dataType.simpleString()) for field in family.value.fields]
    if kept != found:
        raise UsageError(f"Spark keeps {_columns(found)} of these aggregates, and the checkpoint has {_columns(kept)}.")
    return aggregate_frame(frame.sparkSession, pieces, form, family), [family.name]


def _check_key(wanted: StructType, own: StructType, fold: Callable[[str], str]) -> None:
    """Raises UsageError unless the grouping key of the Spark query has the names and types of the checkpoint's."""
    there, here = ([(field.name, field.dataType.simpleString()) for field in key.fields] for key in (wanted, own))
    if [(fold(name), kind) for name, kind in there] != [(fold(name), kind) for name, kind in here]:
        raise UsageError(f"The Spark query groups by {_columns(there)}, and the checkpoint's by {_columns(here)}.")


def _columns(pairs: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in pairs) or "nothing"


def _calls(pairs: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{function}({column or '*'})" for function, column in pairs) or "none"
