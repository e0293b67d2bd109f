"""The plan of a DataFrame with the identity of its records among its output: what each node does to pass it on.

In real time a watermark follows another query's results as far as they were read, and nobody hears of one that a filter
leaves out. There a filter becomes a column, `KEPT`: what it leaves out goes on to the router, which notes its place.
Expressions behind the filter may raise on such a record, so Spark evaluates them of the others only. Where it cannot,
as in a function in Python, filters have to stay what they are.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from pyspark.sql import DataFrame

from impls.errors import UsageError
from impls.spark.links import number_sql, producer_sql
from impls.spark.plans import items, kind_of
from impls.spark.topics import Topics
from impls.store.records import NUMBER, PRODUCER

PARTITION, OFFSET, KEPT = "rescale_partition", "rescale_offset", "rescale_kept"
_CARRIED = {PARTITION, OFFSET, PRODUCER, NUMBER}
_ROWS = {"Generate", "Expand"}  # nodes that make several rows of one, in one order
PLAIN = {"Filter", "SubqueryAlias", "View", "EventTimeWatermark", "ResolvedHint"}
UNORDERED = {"Join", "Repartition", "RepartitionByExpression", "Sort"}  # their rows come in an order that may change
_ELSEWHERE = {"PythonUDF", "ScalarSubquery", "InSubquery", "Exists"}  # not evaluated where they stand


def _stays(expression: Any) -> bool:
    return kind_of(expression) not in _ELSEWHERE and all(_stays(child) for child in items(expression.children()))


def _check_names(node: Any) -> None:
    """Raises UsageError for a column of the user's that has the name of one that is carried; Spark ignores case."""
    if taken := [name for one in items(node.output()) if (name := str(one.name())).lower() in _CARRIED]:
        raise UsageError(f"The input has a column {taken[0]!r}, a name that the runtime needs: give it another one.")


class Carrying:
    """carry() returns a plan with the identity, None where a node does not pass it on.

    Attributes:
        several, unordered, hides: see `impls.spark.identity.Identified`.
        opaque: the node that does not pass it on, "" for none.
        unguarded: something behind a filter is evaluated also of what the filter leaves out, so no filter may be kept.

    Args:
        df: the DataFrame.
        topics: the numbers of its topics.
        keeping: filters become the column `KEPT`.
    """

    def __init__(self, df: DataFrame, topics: Topics, *, keeping: bool):
        self._spark, self._topics, self._keeping = df.sparkSession, topics, keeping
        self._jvm: Any = self._spark._jvm
        self._catalyst: Any = self._spark._jvm.org.apache.spark.sql.catalyst  # type: ignore[union-attr]
        self._left = list(topics.readings)
        self._linked = any(reading.linked for reading in topics.readings)
        self._flags = set[str]()  # ids of the columns `KEPT`, as a user's column may have that name
        self.several, self.unordered, self.opaque, self.hides, self.unguarded = False, "", "", "", False

    def keeps(self, plan: Any) -> bool:
        """Returns whether a plan that `carry` returned has the column `KEPT`."""
        return self._kept(plan) is not None

    def frame(self, plan: Any) -> DataFrame:
        """Returns the DataFrame of a plan."""
        dataset = self._jvm.org.apache.spark.sql.classic.Dataset
        return DataFrame(dataset.ofRows(self._spark._jsparkSession, plan), self._spark)

    def carry(self, node: Any) -> Any | None:
        """Returns a node, whose streaming leaves are Kafka's, with the identity among its output."""
        _check_names(node)
        if not node.children().size():
            return self._leaf(node)
        kind = kind_of(node)
        self.several = self.several or kind in {*_ROWS, "Join"}
        self.unordered = self.unordered or (kind if kind in UNORDERED else "")
        if kind == "Union":
            return self._union(node)
        if (opaque := self._opaque(kind, node)) is not None:
            self.opaque = self.opaque or opaque
            return None
        children = [self.carry(child) if child.isStreaming() else child for child in items(node.children())]
        return None if any(child is None for child in children) else self._made(kind, node, children)

    def _opaque(self, kind: str, node: Any) -> str | None:
        if kind not in _ROWS | PLAIN | UNORDERED | {"Project"}:
            return kind
        streams = kind == "Join" and all(child.isStreaming() for child in items(node.children()))
        return "Join of two streams" if streams else None

    def _made(self, kind: str, node: Any, children: Sequence[Any]) -> Any:
        match kind:
            case "Project":
                return self._behind(items(node.projectList()), children[0], kept=self._kept(children[0]) is not None)
            case "Filter":
                return self._filter(node, children[0])
        self._note_hidden(kind, node, children)
        return self._expand(node, children[0]) if kind == "Expand" else self._with(node, children)

    def _note_hidden(self, kind: str, node: Any, children: Sequence[Any]) -> None:
        outer = kind == "Join" and str(node.joinType().sql()) == "LEFT OUTER"
        if not outer:
            self.hides = self.hides or (kind if kind in {*_ROWS, "Join"} else "")
        if kind in {"Generate", "Join"} and any(self._kept(child) is not None for child in children):
            self._give_up()

    def _give_up(self) -> None:
        self.hides, self.unguarded = self.hides or "Filter", True

    def _leaf(self, node: Any) -> Any:
        reading = self._left.pop(0)
        own = {PARTITION: self._topics.sql(reading), OFFSET: "offset"}
        if self._linked:
            own[PRODUCER] = producer_sql(reading.place) if reading.linked else "0L"
            own[NUMBER] = number_sql() if reading.linked else "0L"
        columns = [f"{expression} AS {name}" for name, expression in own.items()]
        return self.frame(node).selectExpr("*", *columns)._jdf.queryExecution().analyzed()

    def _union(self, node: Any) -> Any | None:
        children = []
        for child in items(node.children()):
            if not child.isStreaming() or (carried := self.carry(child)) is None:
                self.opaque = self.opaque or "Union"
                return None
            children.append((items(child.output()), carried))
        some = any(self._kept(carried) is not None for _, carried in children)
        return self._with(node, [self._behind(output, carried, kept=some) for output, carried in children])

    def _filter(self, node: Any, child: Any) -> Any:
        if not self._keeping or not _stays(node.condition()):
            self.hides = self.hides or "Filter"
            return self._with(node, [child])
        no = self._catalyst.expressions.Literal.FalseLiteral()
        holds = self._expression("Coalesce", self._sequence([node.condition(), no]))
        if (kept := self._kept(child)) is not None:
            holds = self._expression("If", kept, holds, no)
        rest = [one for one in items(child.output()) if not self._is_flag(one)]
        return self._selected([*rest, self._named(holds)], child)

    def _behind(self, expressions: Sequence[Any], child: Any, *, kept: bool) -> Any:
        """Returns a projection of expressions and the identity, with or without `KEPT`."""
        own = self._own(child)
        if kept and self._kept(child) is None:
            own.append(self._named(self._catalyst.expressions.Literal.TrueLiteral()))
        return self._selected([*map(partial(self._guarded, self._kept(child)), expressions), *own], child)

    def _expand(self, node: Any, child: Any) -> Any:
        own, kept = self._own(child), self._kept(child)
        rows = [
            self._sequence([*(self._where(kept, each) for each in items(row)), *own])
            for row in items(node.projections())
        ]
        output = self._sequence([*items(node.output()), *own])
        return self._catalyst.plans.logical.Expand(self._sequence(rows), output, child)

    def _own(self, node: Any) -> list[Any]:
        return [one for one in items(node.output()) if one.name() in _CARRIED or self._is_flag(one)]

    def _kept(self, node: Any) -> Any | None:
        return next(filter(self._is_flag, items(node.output())), None)

    def _is_flag(self, column: Any) -> bool:
        return bool(self._flags) and str(column.exprId()) in self._flags

    def _guarded(self, kept: Any | None, expression: Any) -> Any:
        """Returns a named expression that has a value of what is kept only."""
        if kept is None or kind_of(expression) != "Alias" or kind_of(expression.child()) == "AttributeReference":
            return expression
        given = self._jvm.scala.Option.apply(expression.metadata())  # which is the child's where there is none
        return self._expression(
            "Alias", self._where(kept, expression.child()), expression.name(), expression.exprId(),
            expression.qualifier(), given, expression.nonInheritableMetadataKeys(),
        )  # fmt: skip

    def _where(self, kept: Any | None, expression: Any) -> Any:
        if kept is None or kind_of(expression) in {"AttributeReference", "Literal"}:
            return expression
        if not _stays(expression):
            self._give_up()
        other = self._catalyst.expressions.Literal.default(expression.dataType())
        return self._expression("If", kept, expression, other)

    def _named(self, expression: Any) -> Any:
        """Returns an expression under the name `KEPT`."""
        id_, none = self._catalyst.expressions.NamedExpression.newExprId(), self._jvm.scala.Option.apply(None)
        self._flags.add(str(id_))
        return self._expression("Alias", expression, KEPT, id_, self._sequence([]), none, self._sequence([]))

    def _selected(self, expressions: Sequence[Any], child: Any) -> Any:
        return self._catalyst.plans.logical.Project(self._sequence(expressions), child)

    def _with(self, node: Any, children: Sequence[Any]) -> Any:
        return node.withNewChildren(self._sequence(children).toIndexedSeq())

    def _expression(self, name: str, *given: Any) -> Any:
        return getattr(self._catalyst.expressions, name)(*given)

    def _sequence(self, given: Sequence[Any]) -> Any:
        return self._jvm.org.apache.spark.api.python.PythonUtils.toSeq(list(given))
