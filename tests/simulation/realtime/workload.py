"""Input of the simulated query, partition by partition, and what must come of it."""

import json
import struct
from collections import defaultdict
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
from auctions import FROM_SCRATCH, OF_FIRST_STAGE, ends, random_events, rows
from chaos.recipes import BAD, POISON
from chaos.senders import COLUMNS, Senders

from impls.operators import DenseCount
from impls.store.hashing import bin_of_hash, hash_int64
from impls.store.offsets import WHOLE
from impls.store.records import ROW
from realtime.parameters import Parameters
from realtime.places import Places

_BASE = [("bin", pa.int32()), ("partition", pa.int64()), ("offset", pa.int64()), ("time", pa.int64())]
Record = tuple[int | None, int, dict[str, Any]]  # key, bin, columns


class Workload:
    """produce() adds records; batch() returns those between two offsets of a partition.

    Attributes:
        operator: the query's.
        log: by partition, the rows so far; places: where they are; refused: (partition, index) of those that cannot
            be applied.
        left: number of records to come.
        history: by key, the results that one record after another of it would have; None for one without.
        truth: by key, the state after all records so far; keys without one are not there. `begun`: before all.
        chained: the operator is a Chain.
        text: columns that are no numbers.
    """

    text: frozenset[str] = frozenset({"name", "city", "state"})

    def __init__(self, p: Parameters):
        self._p, self._random = p, Random(p.seed + 1)
        self.operator = p.make_operator()
        self.log: list[list[Record]] = [[] for _ in range(p.partitions)]
        self.refused: set[tuple[int, int]] = set()
        self.places = Places(p.seed, p.partitions, p.rows)
        self.senders = Senders[Record](p.seed, p.linked, p.partitions)
        self.history: dict[int, list[bytes | None]] = defaultdict(list)
        self.begun = dict.fromkeys(range(p.keys), 0) if p.operator in {"dense", "preloaded"} else {}
        self.truth: dict[int, Any] = dict(self.begun)
        self.chained = p.operator == "chain"
        self._weights = [1 / (rank + 1) ** p.skew for rank in range(p.keys)]
        self._idle = {part for part in range(1, p.partitions) if self._random.random() < p.idle}
        self._rows = self._timed_rows() if p.timed else []
        self.left = len(self._rows) if p.timed else p.records
        key_type = pa.int64() if self.operator.key_type == "long" else pa.binary()
        columns = [(name, pa.string() if name in self.text else pa.int64()) for name in self.operator.columns]
        numbers = [(ROW, pa.int64())] if self.places.several else []
        sent = [(name, pa.int64()) for name in COLUMNS if p.linked]
        self.schema = pa.schema([*_BASE, ("key", key_type), *columns, *numbers, *sent])

    def _timed_rows(self) -> list[tuple[int, int, dict[str, Any]]]:
        """Returns partition, key and columns of the input of an operator with event time; behind it everything ends."""
        name, partitions = self._p.operator, self._p.partitions
        self._events = random_events(self._p.seed % 97, self._p.records)
        last = ends(name)[0]
        key = rows(name, [last])[0][1]
        return rows(name, self._events, partitions) + [(partition, key, last) for partition in range(partitions)]

    def bin_of(self, key: int) -> int:
        """Returns a key's bin."""
        if isinstance(self.operator, DenseCount):
            return key // self.operator.per_bin(self._p.bins)
        return int(bin_of_hash(hash_int64(np.array([key], np.int64)), self._p.bins)[0])

    def key_bytes(self, key: int) -> bytes:
        """Returns a key as the operator has it."""
        return key.to_bytes(8, "big")

    def produce(self, number: int) -> None:
        """Adds records, to partitions that are not idle; events keep their order."""
        begun: set[int] = set()  # partitions that have got a row: a record is there whole or not at all
        for _ in range(min(number, self.left)):
            if self._p.timed:
                partition, key, columns = self._rows[len(self._rows) - self.left]
            else:
                key = self._random.choices(range(self._p.keys), self._weights)[0]
                bad = BAD if self._p.bad and self._random.random() < self._p.bad else 0
                partition, columns = key % self._p.partitions, {"value": bad + self._random.randrange(BAD)}
                partition = 0 if partition in self._idle else partition
                self.history[key].append(self._fold(key, columns["value"]))
            self.left -= 1
            record = key, self.bin_of(key), columns
            self._add(partition, record, begun)
            self.senders.sent(partition, record)
            if self._p.refused and self._random.random() < self._p.refused:
                wrong = self._wrong(key, columns)
                self.refused.add((partition, len(self.log[partition])))
                self._add(partition, wrong, begun)
                self.senders.sent(partition, wrong, again=_fails(wrong))
            for again in self.senders.again(partition):
                self._add(partition, again, begun)

    def _add(self, partition: int, record: Record, begun: set[int]) -> None:
        if _fails(record):
            self.refused.add((partition, len(self.log[partition])))
        self.log[partition].append(record)
        self.places.add(partition, begins=partition not in begun)
        begun.add(partition)

    def _wrong(self, key: int, columns: dict[str, Any]) -> Record:
        """Returns a row that cannot be applied."""
        nowhere = self._p.seed % self._p.bins
        wrong: list[Record] = [(None, nowhere, columns)]
        if self._p.timed:
            name = self.operator.event_time.column
            wrong += [(key, self.bin_of(key), {**columns, name: time}) for time in (None, -(2**63), 2**63 - 1)]
        elif isinstance(self.operator, DenseCount):
            wrong.append((self._p.keys, nowhere, columns))
        elif self.chained and not self._p.filters:
            wrong.append((key, self.bin_of(key), {"value": POISON}))
        return self._random.choice(wrong)

    def _fold(self, key: int, value: int) -> bytes | None:
        if self._p.operator != "chain":
            self.truth[key] = self.truth.get(key, 0) + 1
            return struct.pack("<q", self.truth[key])
        count, chain = self.truth.pop(key, (0, 0))
        after = (count + 1, (chain * 31 + value + 1) % 1_000_003)
        if value % 7:
            self.truth[key] = after
        return None if value % 11 == 0 else json.dumps(after, separators=(",", ":")).encode()

    def batch(self, partition: int, low: int, high: int) -> pa.RecordBatch:
        """Returns the rows of a partition from one place in its log to another."""
        found, number = self.log[partition][low:high], high - low
        codes, offsets, rows = zip(*self.places.of(partition, low, high), strict=True)
        keys = [key for key, _, _ in found]
        long = self.operator.key_type == "long"
        columns: list[Any] = [
            [bin_ for _, bin_, _ in found], codes, offsets, [0] * number,
            keys if long else [None if key is None else self.key_bytes(key) for key in keys],
            *([row.get(name) for _, _, row in found] for name in self.operator.columns),
            *([rows] if self.places.several else []),
            *(zip(*self.senders.numbers[partition][low:high], strict=True) if self._p.linked else []),
        ]  # fmt: skip
        arrays = [pa.array(c, kind) for c, kind in zip(columns, self.schema.types, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def offsets(self) -> dict[tuple[int, int], tuple[int, int]]:
        """Returns by (bin, input partition) the offset and the row that are applied last."""
        found = {}
        for partition, log in enumerate(self.log):
            places = self.places.of(partition, 0, len(log))
            for at, ((code, offset, row), record) in enumerate(zip(places, log, strict=True)):
                bin_, applies = record[1], self.applies(partition, at)
                if applies:
                    found[bin_, code] = offset, row if self.places.several else WHOLE
                if self._p.linked and (applies or (_fails(record) and (partition, at) not in self.senders.repeats)):
                    producer, number = self.senders.numbers[partition][at]
                    found[bin_, producer] = number, offset
        return found

    def applies(self, partition: int, at: int) -> bool:
        """Returns whether a row is to be applied, once: it can be, and is no repeat."""
        return (partition, at) not in self.refused | self.senders.repeats

    def answers(self) -> list[str]:
        """Returns the results of a query on event time, or of its first stage, in any order, as text."""
        name = self._p.operator
        first = OF_FIRST_STAGE.get(name)
        found = FROM_SCRATCH[name](self._events) if first is None else first(self._events, self.bin_of)
        return sorted(map(_text, found))

    @staticmethod
    def answer(value: bytes) -> str:
        """Returns a result as `answers` has it."""
        return _text(json.loads(value))


def _fails(record: Record) -> bool:
    """Returns whether the operator fails on a record, which it has then been given, unlike one that is refused."""
    return record[2].get("value") == POISON


def _text(answer: dict[str, Any]) -> str:
    return str({name: answer[name] for name in sorted(answer)})
