"""The meta record: what an environment says about itself."""

import uuid
from dataclasses import dataclass, replace

import lmdb

from impls.errors import StateError
from impls.protocol.jsontext import from_text, to_text
from impls.store.checked import get_checked, put_checked
from impls.store.tables import META

__all__ = ["FORMAT", "Meta", "read_meta", "write_meta"]

FORMAT = 4
_READ = (3, FORMAT)  # 3 had no packs


@dataclass(frozen=True, slots=True)
class Meta:
    """What an environment says of itself: the query and worker it belongs to and the last epoch committed in it."""

    query: str
    worker: int
    epoch: int
    generation: int
    store: str
    format: int = FORMAT

    @classmethod
    def new(cls, query: str, worker: int, epoch: int, generation: int) -> "Meta":
        """Returns the meta record of a new environment with an identity of its own."""
        return cls(query, worker, epoch, generation, uuid.uuid4().hex)

    def at_epoch(self, epoch: int, generation: int) -> "Meta":
        """Returns the meta record as it is after an epoch."""
        return replace(self, epoch=epoch, generation=generation, format=FORMAT)


def read_meta(txn: lmdb.Transaction) -> Meta | None:
    """Returns the environment's meta record, None for a new environment.

    Raises CorruptStateError for a damaged one and StateError for another format.
    """
    raw = get_checked(txn, META)
    if raw is None:
        return None
    data = from_text(raw)
    if data.get("format") not in _READ:
        raise StateError(f"The state has format {data.get('format')}; this version reads format {FORMAT}.")
    return Meta(**data)


def write_meta(txn: lmdb.Transaction, meta: Meta) -> None:
    """Writes the meta record."""
    put_checked(txn, META, to_text(meta))
