"""Events and results as DuckDB's tables, read from Kafka by the oracle's own client."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.oracle.columns import Numbered, Placed
from harness.oracle.read import number_columns, read_columns

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
class Events(Placed):
    """The input as it is in the topic; values are JSON text."""

    value: NDArray[np.object_]


@dataclass(frozen=True, slots=True)
class JsonResults(Numbered):
    """Results of a query: key as bytes, value as text."""

    key: NDArray[np.object_]
    value: NDArray[np.object_]


def load_events(db: Any, events: Events) -> None:
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


def read_events(bootstrap: str, topic: str, *, deadline_s: float) -> Events:
    """Returns the input topic up to its present end; raises OracleError when it cannot in the time."""
    return read_columns(Events, bootstrap, topic, deadline_s, lambda messages: {"value": _texts(messages)})


def read_plain_results(bootstrap: str, topic: str, *, deadline_s: float) -> JsonResults:
    """Returns a results topic without numbers, each result numbered by its place; raises as `read_json_results`."""

    def columns_of(messages: list[Any]) -> dict[str, NDArray[Any]]:
        columns = {"key": _objects([b""] * len(messages)), "value": _texts(messages)}
        nothing = dict.fromkeys(("worker", "generation", "epoch"), np.zeros(len(messages), np.int64))
        return {**columns, **nothing, "index": np.array([message.offset for message in messages], np.int64)}

    return read_columns(JsonResults, bootstrap, topic, deadline_s, columns_of)


def read_json_results(bootstrap: str, topic: str, *, deadline_s: float) -> JsonResults:
    """Returns the results topic, repeats included; raises OracleError when it cannot or a result has no number."""

    def columns_of(messages: list[Any]) -> dict[str, NDArray[Any]]:
        columns = {"key": _objects([message.key or b"" for message in messages]), "value": _texts(messages)}
        return {**columns, **number_columns(messages, topic)}

    return read_columns(JsonResults, bootstrap, topic, deadline_s, columns_of)
