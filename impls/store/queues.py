"""What waits in queues, known in memory: a commit reads the names of all parts, and the values that it takes alone."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice

import lmdb
import pyarrow as pa

from impls.errors import CorruptStateError
from impls.store.entries import CHECK_BYTES
from impls.store.records import EPOCH_BYTES, Lengths, part_number, queued_records, take_parts
from impls.store.tables import QUEUE, bin_key

_Part = tuple[bytes, int, int]  # name, records, bytes of the value as stored


class QueueIndex:
    """Names of the parts of queues, and their lengths. It never changes: operations on queues make another of it.

    Attributes:
        lengths: (records, bytes) by bin of the queues that are not empty, in ascending order of bins.
    """

    def __init__(self, names: Mapping[int, list[bytes]], lengths: Lengths):
        self._names, self.lengths = names, lengths

    @classmethod
    def of(cls, queues: Mapping[int, Sequence[bytes]]) -> "QueueIndex":
        """Returns the index of queues as `stored_queues` returns them."""
        return cls({}, {}).after([(bin_, stored) for bin_, parts in queues.items() for stored in parts])

    def after(self, operations: Iterable[tuple[int, bytes | None]]) -> "QueueIndex":
        """Returns the index behind operations in order: (bin, what `put_queued` has put, None for a queue taken)."""
        return self._with((bin_, None if stored is None else _part_of(bin_, stored)) for bin_, stored in operations)

    def _with(self, operations: Iterable[tuple[int, _Part | None]]) -> "QueueIndex":
        lengths, changed = dict(self.lengths), dict[int, list[bytes]]()
        for bin_, part in operations:
            names = changed.setdefault(bin_, list(self._names.get(bin_, ())))
            if part is None:
                names.clear()
                lengths.pop(bin_, None)
                continue
            records, size = lengths.get(bin_, (0, 0))
            names.append(part[0])
            lengths[bin_] = records + part[1], size + part[2]
        return QueueIndex({**self._names, **changed}, dict(sorted(lengths.items())))

    def check(self, txn: lmdb.Transaction) -> None:
        """Raises CorruptStateError when the parts that are stored have other names: a damaged one may hide others.

        No value is read: one that is damaged misleads no search, and `take` checks it before it is used.
        """
        known = list(chain.from_iterable(self._names[bin_] for bin_ in self.lengths))
        cursor = txn.cursor()
        found = list(islice(cursor.iternext(values=False), len(known) + 1)) if cursor.set_range(QUEUE) else []
        behind = found[len(known) :]
        if b"".join(found[: len(known)]) != b"".join(known) or (behind and bytes(behind[0])[:1] == QUEUE):
            raise CorruptStateError("The queues are not as the last commit left them: the state is damaged.")

    def take(self, txn: lmdb.Transaction, bins: Iterable[int]) -> list[tuple[int, pa.Table]]:
        """Removes the queues of bins and returns number and records of their parts.

        Raises CorruptStateError when a part is damaged, or not one of those that are known: what a damaged key hides
        would be lost, or come back.
        """
        tables = []
        for bin_ in bins:
            parts = take_parts(txn, bin_)
            if [name for name, _ in parts] != self._names.get(bin_, []):
                raise CorruptStateError(f"The queue of bin {bin_} is not as it was stored: the state is damaged.")
            tables += [(part_number(stored), queued_records(stored)) for _, stored in parts]
        return tables


def _part_of(bin_: int, stored: bytes) -> _Part:
    head, size = stored[: EPOCH_BYTES + 4], len(stored) - EPOCH_BYTES + CHECK_BYTES
    return bin_key(QUEUE, bin_) + head[:EPOCH_BYTES], int.from_bytes(head[EPOCH_BYTES:], "little"), size
