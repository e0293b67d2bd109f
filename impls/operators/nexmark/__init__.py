"""NEXMark queries 0 to 22 as operators of the migration runtime, each with a declared dialect.

`make("q4", partitions=4)` gives an operator, `impls.spark.columns.project` its input. Queries 4 to 7, 15 and 16 are
chains of two stages: that operator is the first one, and `QUERIES["q4"].second` the class of the second one.
"""

from impls.errors import UsageError
from impls.operators.base import Operator
from impls.operators.nexmark.base import NexmarkQuery, SecondStage, TimedQuery
from impls.operators.nexmark.closings import Q4, Q6, Q9
from impls.operators.nexmark.joins import Q3, Q8, Q20
from impls.operators.nexmark.perwindow import Q15, Q16, Q17, Q18, Q19
from impls.operators.nexmark.stateless import Q0, Q1, Q2, Q10, Q13, Q14, Q21, Q22
from impls.operators.nexmark.windows import Q5, Q7, Q11, Q12

__all__ = ["QUERIES", "NexmarkQuery", "SecondStage", "TimedQuery", "make"]

QUERIES: dict[str, type[NexmarkQuery]] = {
    query.__name__.lower(): query
    for query in (
        Q0, Q1, Q2, Q3, Q4, Q5, Q6, Q7, Q8, Q9, Q10, Q11, Q12, Q13, Q14, Q15,
        Q16, Q17, Q18, Q19, Q20, Q21, Q22,
    )
}  # fmt: skip


def make(name: str, *, partitions: int = 0, disorder: int = 0) -> Operator:
    """Returns a query's operator, of two stages the first one's.

    Raises:
        UsageError: the name is not one of `QUERIES`.

    Args:
        name: the query.
        partitions: partitions of the events' topic, so that there is no watermark before all have been seen.
        disorder: how far events of one partition may be out of order, ms.
    """
    if name not in QUERIES:
        raise UsageError(f"There is no NEXMark query {name!r}; there are {', '.join(QUERIES)}.")
    query = QUERIES[name]
    made = query(partitions, disorder) if issubclass(query, TimedQuery) else query()
    assert isinstance(made, Operator), "a query is an operator"
    return made
