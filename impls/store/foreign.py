"""State of another query in a state folder, which a start refuses before it changes anything there."""

from pathlib import Path

import lmdb

from impls.errors import StateError, UsageError
from impls.protocol.jsontext import from_text
from impls.store.checked import get_checked
from impls.store.environment import Store
from impls.store.tables import META

_LEAST_BYTES = 2 * 4096  # of LMDB's two pages that say where everything is


def check_own(folder: str | Path, query: str) -> None:
    """Refuses a folder in which a worker's environment says that it belongs to another query, which may be running.

    Nothing is written, and no writer's lock is taken. What cannot be read is left to its worker, who rebuilds it.

    Args:
        folder: of the environments on this host; it may be missing.
        query: the identity of the query that is to have it.

    Raises:
        UsageError: an environment of another query is there.
    """
    for path in sorted(Path(folder).glob("worker-*")):
        if path.suffix == "" and _query_of(path) not in {None, query}:
            raise UsageError(f"The state in {path} belongs to another query: give this one its own state folder.")


def _query_of(path: Path) -> str | None:
    """Returns the query that an environment belongs to, None where it says nothing that can be read."""
    try:
        size = (path / "data.mdb").stat().st_size
        if size < _LEAST_BYTES:
            return None
        with Store.open(path, readonly=True) as store:
            if store.used_bytes() > size:  # it may be truncated, and to read beyond its end ends the process
                return None
            return _query_in(store)
    except (StateError, lmdb.Error, OSError, ValueError):
        return None


def _query_in(store: Store) -> str | None:
    with store.reading(buffers=False) as txn:
        raw = get_checked(txn, META)
    found = None if raw is None else from_text(raw).get("query")
    return None if found is None else str(found)
