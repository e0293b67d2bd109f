"""A query's results against those of its definition, both as DuckDB's tables: what was lost, doubled or wrong.

The property: the results, repeats dropped, are the multiset that the definition gives for the whole input up to the
watermark; a repeat equals what it repeats, and the results of a key that come from its bin are in one partition. Every
event belongs to exactly one committed epoch.
"""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from harness.oracle.columns import BinOf, Columns, MovedBins, Numbered, OracleError, Placed, Ranges
from harness.oracle.nexmark.queries import DEFINITIONS, Definition
from harness.oracle.read import number_columns, read_columns
from harness.oracle.verdict import NUMBERED, Differences

_FIELDS = {
    "id": "BIGINT", "name": "VARCHAR", "city": "VARCHAR", "state": "VARCHAR", "reserve": "BIGINT", "expires": "BIGINT",
    "seller": "BIGINT", "category": "BIGINT", "auction": "BIGINT", "bidder": "BIGINT", "price": "BIGINT",
    "dateTime": "BIGINT", "scheduled_us": "BIGINT", "channel": "VARCHAR", "url": "VARCHAR", "extra": "VARCHAR",
}  # fmt: skip
_EVENT = """
CREATE TABLE event AS
SELECT "partition", "offset", value, unnest(from_json(value, '{structure}')) FROM raw
"""
_KINDS = {"bid": "bidder IS NOT NULL", "auction": "seller IS NOT NULL", "person": "bidder IS NULL AND seller IS NULL"}


@dataclass(frozen=True, slots=True)
class InputEvents(Placed):
    """The input as it is in the topic; values are JSON text."""

    value: NDArray[np.object_]


@dataclass(frozen=True, slots=True)
class JsonResults(Numbered):
    """Results of a query: key as bytes, value as text; `appended_us` is the time that the topic has for each."""

    key: NDArray[np.object_]
    value: NDArray[np.object_]
    appended_us: NDArray[np.int64]


def load_events(db: Any, events: InputEvents) -> None:
    """Makes the table event with all fields (NULL where an event has none), and the views person, auction and bid."""
    structure = ", ".join(f'"{name}":"{kind}"' for name, kind in _FIELDS.items())
    db.register("raw", events.table())
    db.execute(_EVENT.format(structure="{" + structure + "}"))
    for name, condition in _KINDS.items():
        db.execute(f"CREATE VIEW {name} AS SELECT * FROM event WHERE {condition}")


def _objects(values: list[Any]) -> NDArray[np.object_]:
    out = np.empty(len(values), object)
    out[:] = values
    return out


def _texts(messages: list[Any]) -> NDArray[np.object_]:
    return _objects([(message.value or b"").decode() for message in messages])


def _times(messages: list[Any]) -> NDArray[np.int64]:
    return np.array([message.timestamp for message in messages], np.int64) * 1000


def read_events(bootstrap: str, topic: str, *, deadline_s: float) -> InputEvents:
    """Returns the input topic up to its present end; raises OracleError when it cannot in the time."""
    return read_columns(InputEvents, bootstrap, topic, deadline_s, lambda messages: {"value": _texts(messages)})


def read_plain_results(bootstrap: str, topic: str, *, deadline_s: float) -> JsonResults:
    """Returns a results topic without numbers, each result numbered by its place; raises as `read_json_results`."""

    def columns_of(messages: list[Any]) -> dict[str, NDArray[Any]]:
        columns = {"key": _objects([b""] * len(messages)), "value": _texts(messages), "appended_us": _times(messages)}
        nothing = dict.fromkeys(("worker", "generation", "epoch", "commit"), np.zeros(len(messages), np.int64))
        return {**columns, **nothing, "index": np.array([message.offset for message in messages], np.int64)}

    return read_columns(JsonResults, bootstrap, topic, deadline_s, columns_of)


def read_json_results(bootstrap: str, topic: str, *, deadline_s: float) -> JsonResults:
    """Returns the results topic, repeats included; raises OracleError when it cannot or a result has no number."""

    def columns_of(messages: list[Any]) -> dict[str, NDArray[Any]]:
        keys = _objects([message.key or b"" for message in messages])
        columns = {"key": keys, "value": _texts(messages), "appended_us": _times(messages)}
        return {**columns, **number_columns(messages, topic)}

    return read_columns(JsonResults, bootstrap, topic, deadline_s, columns_of)


_READ = """
CREATE TABLE read AS
SELECT i."partition", i."offset", i.key, i."dateTime", i.scheduled_us,
       CASE WHEN i."offset" < r."end" THEN r.epoch END AS epoch
FROM ({chosen}) i ASOF LEFT JOIN ranges r ON i."partition" = r."partition" AND i."offset" >= r."begin"
"""

# In real time no log of Spark's says which events were taken: all must have been, and the time stands for the epoch.
_READ_WHOLE = """
CREATE TABLE read AS
SELECT "partition", "offset", key, "dateTime", scheduled_us, coalesce(scheduled_us, 0) AS epoch FROM ({chosen})
"""

_ARRIVED = "SELECT coalesce(epoch, -1) AS epoch, coalesce(scheduled_us, -1) AS scheduled_us FROM read"

_WATERMARK = """
SELECT {reached}(latest) - $disorder FROM (SELECT max("dateTime") AS latest FROM read GROUP BY "partition")
"""

# Of each result that is right when it was there first, and when the event was due that completed it.
_TIMES = """
SELECT c.scheduled_us, f.appended_us
FROM (SELECT {fields}, min(appended_us) AS appended_us FROM results GROUP BY ALL) f
JOIN expected e ON {equal}
JOIN ({completed}) c ON {same}
WHERE c.scheduled_us IS NOT NULL
"""

# As text, so that a value of the wrong type is a wrong result and no error.
_FOUND = """
CREATE TABLE raw_found AS SELECT {fields}, count(*) AS n, min(epoch) AS epoch FROM numbered WHERE accepted GROUP BY ALL
"""
_CHOSEN = 'SELECT "partition", "offset", {key} AS key, "dateTime", scheduled_us FROM {table} WHERE {where}'
_EXPECTED = "CREATE TABLE expected AS SELECT {columns}, count(*) AS n FROM ({sql}) t({names}) GROUP BY ALL"
_BOTH = """
CREATE TABLE compared AS
SELECT coalesce(e.n, 0) AS expected, f.epoch, {both}, coalesce(f.n, 0) AS there,
       CASE WHEN $repeats THEN least(coalesce(f.n, 0), coalesce(e.n, f.n)) ELSE coalesce(f.n, 0) END AS found
FROM expected e FULL JOIN found f ON {equal}
"""
_AGAIN = "SELECT coalesce(sum(there - found), 0) FROM compared"

_FINDINGS = (Path(__file__).parent / "findings.sql").read_text(encoding="utf-8")
_EXAMPLE = "SELECT why, epoch, expected, found, result FROM finding WHERE class = $class ORDER BY {order} LIMIT 1"
_ORDERS = {
    "first": "epoch NULLS LAST, result",
    "worst": "n DESC, epoch NULLS LAST, result",
    "last": "epoch DESC NULLS FIRST, result DESC",
}


@dataclass(frozen=True, slots=True)
class Rules:
    """What a pipeline promises.

    Attributes:
        disorder: how far the watermark stays behind the events, ms.
        fastest: the watermark goes by the partition that is furthest, not by the one that is least far.
        repeats: results may be repeated (at least once) and are not numbered.
    """

    disorder: int = 0
    fastest: bool = False
    repeats: bool = False


_EXACTLY_ONCE = Rules()


@dataclass(frozen=True, slots=True)
class Arrived(Columns):
    """The events that a query reads, in no order; `epoch` is -1 of an event in no committed epoch."""

    epoch: NDArray[np.int64]
    scheduled_us: NDArray[np.int64]

    def measured(self, start_us: int) -> int:
        """Returns the number of events of a load that began at `start_us` (µs since 1970)."""
        return int(np.count_nonzero(self.scheduled_us >= start_us))


def check(
    events: InputEvents,
    results: JsonResults,
    ranges: Ranges | None,
    *,
    query: str,
    bin_of: BinOf,
    moves: MovedBins,
    rules: Rules = _EXACTLY_ONCE,
) -> tuple[Differences, Arrived]:
    """Compares results with those of the query's definition; returns findings and the events that the query reads.

    Args:
        events: the whole input topic.
        results: the whole results topic, repeats included.
        ranges: offsets of each committed epoch; None where results are numbered by commits, and all events were taken.
        query: its name.
        bin_of: bins of keys, array to array.
        moves: bins that changed their owner, to count the events that crossed a migration; without epochs its epoch is
            the time from which an event that is scheduled crosses it.
        rules: how far the watermark is, and what may be repeated.
    """
    definition = DEFINITIONS[query]
    with duckdb.connect() as db:
        load_events(db, events)
        db.register("moves", moves.table())
        db.register("results", results.table())
        if ranges is not None:
            db.register("ranges", ranges.table())
        db.execute((_READ_WHOLE if ranges is None else _READ).format(chosen=chosen_events(definition)))
        db.register("bins", _bins(db, bin_of))
        db.execute(NUMBERED)
        _compare(db, query, definition, rules)
        db.execute(_FINDINGS, {"keyed": not rules.repeats})
        sent, raw = len(events), len(results)
        found = Differences.of(db, "sum(n)", _EXAMPLE, _ORDERS, records=sent, raw=raw, applied="read")
        again = int(db.execute(_AGAIN).fetchone()[0])  # beside those that a number tells
        return replace(found, results=found.results - again, repeats=found.repeats + again), _arrived(db)


def chosen_events(definition: Definition) -> str:
    """Returns the SQL of the events that a query reads, with the key of each."""
    return " UNION ALL ".join(_CHOSEN.format(**asdict(read)) for read in definition.reads)


def _arrived(db: Any) -> Arrived:
    return Arrived(**{name: column.astype(np.int64) for name, column in db.execute(_ARRIVED).fetchnumpy().items()})


def _compare(db: Any, query: str, definition: Definition, rules: Rules) -> None:
    texts = ["value"] if query == "q0" else [f"json_extract_string(value, '$.{name}')" for name in definition.fields]
    fields = ", ".join(f'{text} AS "{name}"' for text, name in zip(texts, definition.fields, strict=True))
    db.execute(_FOUND.format(fields=fields))
    db.execute(f"CREATE TABLE found AS {definition.of_found or 'SELECT * FROM raw_found'}")
    names = _expect(db, definition, rules)
    both = "concat_ws(', ', " + ", ".join(f"coalesce(e.{name}, f.{name})" for name in names) + ") AS result"
    equal = " AND ".join(f"e.{name} = f.{name}" for name in names)
    db.execute(_BOTH.format(both=both, equal=equal), {"repeats": rules.repeats})


def _expect(db: Any, definition: Definition, rules: Rules) -> list[str]:
    """Makes the table of expected results, as text, and returns the names of its fields, quoted."""
    names = [f'"{name}"' for name in definition.compared or definition.fields]
    columns = ", ".join(f"CAST({name} AS VARCHAR) AS {name}" for name in names)
    reached = _WATERMARK.format(reached="max" if rules.fastest else "min")
    (watermark,) = db.execute(reached, {"disorder": rules.disorder}).fetchone()
    given = {"watermark": watermark} if "$watermark" in definition.sql else {}
    db.execute(_EXPECTED.format(columns=columns, sql=definition.sql, names=", ".join(names)), given)
    return names


def latencies_of(
    events: InputEvents, results: JsonResults, *, query: str, disorder: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns when the completing event of each right result was due, and when the result was there, µs, shape (n,).

    Raises:
        OracleError: the query's definition does not say which event completes a result.
    """
    definition = DEFINITIONS[query]
    if not definition.completed:
        raise OracleError(f"Which event completes a result of {query} is not defined.")
    with duckdb.connect() as db:
        load_events(db, events)
        db.register("results", results.table())
        db.execute(_READ_WHOLE.format(chosen=chosen_events(definition)))
        _expect(db, definition, Rules(disorder))
        names = list(definition.fields)
        fields = ", ".join(f"json_extract_string(value, '$.{name}') AS \"{name}\"" for name in names)
        equal = " AND ".join(f'e."{name}" = f."{name}"' for name in names)
        same = " AND ".join(f'CAST(c."{name}" AS VARCHAR) = f."{name}"' for name in definition.completed_by)
        completed = definition.completed.replace("$disorder", str(disorder))
        found = db.execute(_TIMES.format(fields=fields, equal=equal, completed=completed, same=same)).fetchnumpy()
    return found["scheduled_us"].astype(np.int64), found["appended_us"].astype(np.int64)


def _bins(db: Any, bin_of: BinOf) -> pa.Table:
    keys = np.sort(db.execute("SELECT DISTINCT key FROM read").fetchnumpy()["key"]).astype(np.int64)
    return pa.table({"key": keys, "bin": bin_of(keys)})
