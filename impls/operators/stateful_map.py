"""A record-at-a-time operator for users: one function from (key, record, state) to (state, result)."""

from abc import abstractmethod
from typing import Any

import numpy as np
import pyarrow as pa

from impls.operators.base import RecordOperator
from impls.operators.blame import Failures
from impls.protocol.jsontext import value_from_text, value_to_text
from impls.store.records import Results
from impls.store.state import BinState


class StatefulMap(RecordOperator):
    """update() is called for every record in (partition, offset) order; a key's last result of a commit is sent.

    That is Spark's update mode: in micro-batches one result for a key and epoch, in real time one for each commit.
    State and results are JSON values by default; override `dump` and `load` for another encoding.
    """

    @abstractmethod
    def update(self, key: bytes, record: dict[str, Any], state: Any) -> tuple[Any, Any]:
        """Returns (new state, result); a state of None deletes the entry, a result of None sends nothing.

        Args:
            key: the record's key as bytes.
            record: `columns` of the record by name.
            state: what the last call for this key returned, None for a key without state.
        """

    def dump(self, value: Any) -> bytes:
        """Encodes a state or a result."""
        return value_to_text(value)

    def load(self, raw: bytes) -> Any:
        """Decodes a state."""
        return value_from_text(raw)

    def state_form(self) -> dict[str, Any]:
        """Says that values are JSON, where they are."""
        own = type(self).load is not StatefulMap.load or type(self).dump is not StatefulMap.dump
        return super().state_form() if own else {**super().state_form(), "values": "json"}

    def apply(self, records: pa.Table, state: BinState) -> Results:
        """Applies records one by one; see `RecordOperator`."""
        entries: dict[tuple[int, bytes], Any] = {}
        results: dict[tuple[int, bytes], Any] = {}
        rows = records.select(self.columns).to_pylist() if self.columns else [{}] * len(records)
        bins, keys = records.column("bin").to_pylist(), records.column("key").to_pylist()
        wanted = list(dict.fromkeys(zip(bins, keys, strict=True)))
        old = state.get_many([b for b, _ in wanted], [k for _, k in wanted])
        for name, raw in zip(wanted, old, strict=True):
            entries[name] = None if raw is None else self.load(raw)
        failures, last = Failures(records, "update", careful=state.careful), dict(zip(wanted, old, strict=True))
        for place, (name, row) in enumerate(zip(zip(bins, keys, strict=True), rows, strict=True)):
            try:
                entries[name], results[name] = self.update(name[1], row, entries[name])
                if state.careful:
                    last[name] = self._dumped(entries[name], results[name])
            except Exception as error:
                failures.add(place, error)
                entries[name] = None if (raw := last[name]) is None else self.load(raw)
        failures.check()
        self._write(state, wanted, entries, old)
        sent = [(name, value) for name, value in results.items() if value is not None]
        return Results(
            np.array([b for (b, _), _ in sent], np.int32), [k for (_, k), _ in sent], [self.dump(v) for _, v in sent]
        )

    def _dumped(self, state: Any, result: Any) -> bytes | None:
        """Returns an encoded state; raises what encoding it or the result raises."""
        if result is not None:
            self.dump(result)
        return None if state is None else self.dump(state)

    def _write(
        self,
        state: BinState,
        wanted: list[tuple[int, bytes]],
        entries: dict[tuple[int, bytes], Any],
        old: list[bytes | None],
    ) -> None:
        kept = [i for i, name in enumerate(wanted) if entries[name] is not None]
        for name in wanted:
            if entries[name] is None:
                state.delete(*name)
        state.put_many(
            [wanted[i][0] for i in kept],
            [wanted[i][1] for i in kept],
            [self.dump(entries[wanted[i]]) for i in kept],
            [old[i] for i in kept],
        )
