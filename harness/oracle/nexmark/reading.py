"""How many events of a topic a query reads, counted from the topic alone."""

import duckdb

from harness.oracle.nexmark.check import chosen_events
from harness.oracle.nexmark.queries import DEFINITIONS
from harness.oracle.nexmark.tables import load_events, read_events

__all__ = ["events_read"]

_DEADLINE_S = 300.0


def events_read(bootstrap: str, topic: str, query: str) -> int:
    """Returns the number of events in a topic, up to its present end, that a query reads.

    Raises:
        OracleError: the topic cannot be read in five minutes.
    """
    events = read_events(bootstrap, topic, deadline_s=_DEADLINE_S)
    if not len(events):
        return 0
    with duckdb.connect() as db:
        load_events(db, events)
        (number,) = db.execute(f"SELECT count(*) FROM ({chosen_events(DEFINITIONS[query])})").fetchall()[0]
    return int(number)
