"""The identity of a record: input partition and offset, carried from Kafka's source through the plan of a DataFrame.

A user's DataFrame may have left the topic out, or count its partitions in another way. So the identity does not come
from its columns: the plan is made anew with two more, which every node passes on. Where a node cannot, the DataFrame's
own `partition` and `offset` count, and only records of one topic can have them.
"""

import re
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from impls.errors import UsageError
from impls.spark.carrying import PLAIN, UNORDERED, Carrying
from impls.spark.plans import items, kind_of
from impls.spark.topics import LINKED, Reading, Topics, reading_of

KAFKA = "kafka"
_CLOCKS = re.compile(r"\b(current_timestamp|current_date|current_time|localtimestamp|now)\(")
_LITERAL = re.compile(r"'(?:[^'\\]|\\.)*'")
_NUMBER = re.compile(r"#\d+L?")  # of an expression, in this session


def streaming_sources(df: DataFrame) -> list[Any]:
    """Returns the JVM's nodes of a DataFrame's plan that read a streaming source."""
    leaves = df._jdf.queryExecution().analyzed().collectLeaves()
    return [leaf for leaf in items(leaves) if leaf.isStreaming()]


def readings_of(df: DataFrame) -> list[Reading]:
    """Returns what the Kafka sources of a DataFrame read; [] where another source streams too.

    Raises UsageError where one of several kinds of sources has another query's results.
    """
    leaves = streaming_sources(df)
    if any(str(leaf.sourceName()) != KAFKA for leaf in leaves):
        if any(str(leaf.sourceName()) == KAFKA and LINKED in _options(leaf) for leaf in leaves):
            raise UsageError(
                "The input has another query's results beside a source that is not Kafka, where repeats cannot be "
                "told: read that source in a query of its own."
            )
        return []
    return [reading_of(_options(leaf), place) for place, leaf in enumerate(leaves)]


def _options(leaf: Any) -> dict[str, str]:
    options = leaf.extraOptions()
    names = ("subscribe", "subscribePattern", "assign", "failOnDataLoss", LINKED)
    return {name.lower(): str(value) for name in names if (value := options.get(name)) is not None}


@dataclass(frozen=True)
class Identified:
    """A DataFrame with the identity of its records.

    Attributes:
        frame: it has the columns `PARTITION` and `OFFSET` if `carried`.
        carried: the plan passes the identity on.
        several: one record can become several rows.
        unordered: a node whose rows come in an order that may change, "" for none.
        rows: where rows are numbered, what decides which a record becomes, see `rows_of`.
        linked: some records are another query's results; the frame has `PRODUCER` and `NUMBER` too.
        hides: a node behind which nobody knows of the last records whether they were read, as it may make no row of
            a record or several; "" for none.
        kept: the frame has the column `KEPT`, which is not true for a record that a filter leaves out.
    """

    frame: DataFrame
    carried: bool = False
    several: bool = False
    unordered: str = ""
    rows: tuple[str, ...] = ()
    linked: bool = False
    hides: str = ""
    kept: bool = False


def identified(df: DataFrame, topics: Topics, *, keeping: bool = False) -> Identified:
    """Returns a streaming DataFrame with the identity of its records, as far as its plan passes it on.

    Args:
        df: the DataFrame.
        topics: the numbers of its topics.
        keeping: another query's results that a filter leaves out stay where that is possible, see `Identified.kept`.

    Raises:
        UsageError: an expression of the plan gives another value with each evaluation, or the plan hides from which of
            several topics a record is.
    """
    plan = df._jdf.queryExecution().analyzed()
    if df.isStreaming and _varies(df, plan):
        raise UsageError(
            "The input has an expression that gives another value each time, such as rand or uuid: a record that is "
            "read again after a failure must give the same rows. Leave it out, or compute it in the operator."
        )
    linked = any(reading.linked for reading in topics.readings)
    carrying = Carrying(df, topics, keeping=keeping and linked)
    carried, hides = carrying.carry(plan) if topics.readings else None, carrying.hides
    if carrying.unguarded:
        carrying = Carrying(df, topics, keeping=False)
        carried = carrying.carry(plan)
    if carried is not None:
        frame = carrying.frame(carried)
    else:
        frame = df
        _check_one_topic(topics, carrying.opaque)
    several = carrying.several or bool(carrying.opaque)
    kept = carried is not None and carrying.keeps(carried)
    return Identified(frame, carried is not None, several, carrying.unordered, linked=linked, hides=hides, kept=kept)


_BITS = "doubleToLongBits"  # of a key with doubles (`impls.processor.keys`), which Spark computes by reflection


def _varies(df: DataFrame, plan: Any) -> bool:
    """Returns whether an expression of a plan gives another value with each evaluation; the bits of a double do not.

    Spark takes whatever is called by reflection for such an expression.
    """
    jvm: Any = df.sparkSession._jvm
    nodes, sequence = [] if plan.deterministic() else [plan], jvm.org.apache.spark.api.python.PythonUtils.toSeq

    def without_bits(expression: Any) -> Any:
        if expression.deterministic():
            return expression
        children = [without_bits(child) for child in items(expression.children())]
        if str(expression.prettyName()) == "reflect" and _BITS in str(expression.sql()):
            return children[-1]
        return expression.withNewChildren(sequence(children).toIndexedSeq()) if children else expression

    while nodes:
        node = nodes.pop()
        nodes += items(node.children())
        if not all(without_bits(expression).deterministic() for expression in items(node.expressions())):
            return True
    return False


def clock_in(df: DataFrame) -> str:
    """Returns the name of an expression of a plan that is another time when a record is read again, "" for none."""
    nodes, found = [df._jdf.queryExecution().analyzed()], ""
    while nodes and not found:
        node = nodes.pop()
        nodes += items(node.children())
        texts = [str(expression.sql()) for expression in items(node.expressions())]
        found = next((match[1] for text in texts if (match := _CLOCKS.search(_LITERAL.sub("", text)))), "")
    return found


def rows_of(df: DataFrame) -> tuple[str, ...]:
    """Returns what decides which rows of a streaming DataFrame a record becomes, () where it becomes one at most.

    These are the nodes that make several rows of one, filters behind them, and the columns that they read: by another
    one, rows that come again would have other numbers. What is the same in another session is the same text.
    """
    found: list[str] = []
    _makes_rows(df._jdf.queryExecution().analyzed(), found, {})
    return tuple(found)


_Columns = dict[str, list[Any]]
"""By the id of a column, the expressions that make it: several behind a union."""


def _makes_rows(node: Any, found: list[str], columns: _Columns) -> bool:
    kind, children = kind_of(node), [c for c in items(node.children()) if c.isStreaming()]
    inside = [_makes_rows(child, found, columns) for child in children]
    makes = bool(inside) and kind not in PLAIN | UNORDERED | {"Project", "Union"}
    if makes or (kind == "Filter" and any(inside)):
        expressions = _with_columns(items(node.expressions()), columns)
        found.append(f"{kind}: {', '.join(_same_in_all_sessions(str(each.sql())) for each in expressions)}")
    if kind == "Project":
        columns |= {_id(each): [each.child()] for each in items(node.projectList()) if _is_alias(each)}
    if kind == "Union":
        for child in children:
            for own, other in zip(items(node.output()), items(child.output()), strict=True):
                if _id(own) != _id(other):  # the first child's go on
                    columns.setdefault(_id(own), []).extend(columns.get(_id(other), ()))
    return makes or any(inside)


def _with_columns(expressions: list[Any], columns: _Columns) -> list[Any]:
    """Returns expressions and those of the columns that they read."""
    every, known = list(expressions), set[str]()
    for expression in every:  # which grows
        read = [_id(column) for column in items(expression.references().toSeq())]  # by their names
        every += [made for id_ in read if id_ not in known for made in columns.get(id_, ())]
        known |= {*read}
    return every


def _id(column: Any) -> str:
    return str(column.exprId())


def _is_alias(expression: Any) -> bool:
    return kind_of(expression) == "Alias"


def _same_in_all_sessions(sql: str) -> str:
    """Returns an expression's text without the numbers that it has in this session; literals stay as they are."""
    texts, literals = _LITERAL.split(sql), [*_LITERAL.findall(sql), ""]
    return "".join(_NUMBER.sub("", text) + literal for text, literal in zip(texts, literals, strict=True))


def _check_one_topic(topics: Topics, opaque: str) -> None:
    if any(reading.linked for reading in topics.readings):
        raise UsageError(
            f"The input has {opaque} behind another query's results, which hides which of them are repeats: use it in "
            "the operator."
        )
    one = len(topics.readings) == 1 and set(topics.numbers.values()) == {0}  # now, and at every start before
    if topics.readings and (not one or topics.former or topics.readings[0].topics is None):
        raise UsageError(
            f"The input has {opaque} behind its topics, which hides from which topic a record is: use it in the "
            "operator, or read one topic only."
        )
