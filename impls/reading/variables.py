"""The state variables of a processor as its checkpoint has them: rows and keys of fields to values."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from impls.processor.kept import EvolvedRows, deleted_variables, kept_variables
from impls.processor.keys import KeyCodec
from impls.store.naming import time_of


class Variables:
    """read() gives what an entry of a variable holds.

    Args:
        folder: the checkpoint's.
        now: returns the processing time, ms, up to which what has a time to live has expired; None for no such time.

    Raises:
        UsageError: the file that names the variables is missing or damaged.
    """

    def __init__(self, folder: Path, now: Callable[[], int | None]):
        self._now, self._of, self._deleted = now, kept_variables(folder), deleted_variables(folder)
        self._rows = {name: EvolvedRows(kept.history) for name, kept in self._of.items()}
        self._keys = {name: KeyCodec(kept.keys) for name, kept in self._of.items() if kept.keys is not None}

    def read(self, name: str, field: Any, stored: bytes) -> tuple[Any, Any] | None:
        """Returns (key of the field, value) as Rows, the former as it is where it is no map.

        None for what has expired, or was deleted with its variable.

        A field's key is bytes where an early version has not kept what keys are.
        """
        if name in self._deleted:
            return None
        kept, raw = self._of[name], stored
        if kept.expires:
            now = self._now()
            if now is not None and time_of(raw) <= now:
                return None
            raw = raw[8 if kept.kind == "list" else 16 :]
        key = self._keys[name].decode(field) if name in self._keys else field
        return key, self._rows[name].decode_row(raw)
