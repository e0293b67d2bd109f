"""The query's part of the checkpoint folder: identity, lock, generation and journals."""

import fcntl
import json
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from impls.errors import UsageError
from impls.runtime.journal import Journal, read_journal

__all__ = ["Checkpoint"]

FORMAT = 1


class Checkpoint:
    """Opens `<folder>/rescale` for one driver at a time; Spark's own files are in `<folder>/spark`.

    Every opening takes the next generation number, which plans and environments carry; lower ones are refused there.

    Raises:
        UsageError: another driver holds the folder, or it belongs to a query with other settings.
    """

    def __init__(self, folder: str | Path, settings: Mapping[str, Any]):
        self.folder = Path(folder).absolute()
        self.own = self.folder / "rescale"
        self.own.mkdir(parents=True, exist_ok=True)
        self._lock = self._take_lock()
        try:
            self.query = self._identity(dict(settings))
            self.generation = self._next_generation()
            self.plans = Journal(self.own / "plan.log")
            self.observed = Journal(self.own / "observed.log")
            self.commands = Journal(self.own / "commands.log")
        except BaseException:
            self._lock.close()
            raise

    @property
    def spark(self) -> str:
        """Folder for Spark's checkpointLocation."""
        return str(self.folder / "spark")

    def read(self, name: str) -> list[dict[str, Any]]:
        """Returns the entries of the journal `plan`, `observed` or `commands`."""
        return read_journal(self.own / f"{name}.log")

    def close(self) -> None:
        """Closes the journals and releases the folder."""
        for journal in (self.plans, self.observed, self.commands):
            journal.close()
        self._lock.close()

    def _take_lock(self) -> IO[str]:
        lock = (self.own / "lock").open("a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.seek(0)
            holder = lock.read().strip() or "unknown"
            lock.close()
            raise UsageError(
                f"The checkpoint {self.folder} is in use by another driver (process {holder}): stop it first."
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        return lock

    def _identity(self, settings: dict[str, Any]) -> str:
        path = self.own / "query.json"
        if not path.exists():
            data = {"format": FORMAT, "query": uuid.uuid4().hex, "settings": settings}
            replace_text(path, json.dumps(data, indent=1))
            return str(data["query"])
        try:
            data = json.loads(path.read_text())
            stored, query, version = data["settings"], str(data["query"]), data["format"]
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"The checkpoint {self.folder} is corrupt ({path.name}): restore it or use another."
            ) from error
        if version != FORMAT:
            raise UsageError(f"The checkpoint {self.folder} has format {version}; this version reads {FORMAT}.")
        for name, value in settings.items():
            if stored.get(name) != value:
                raise UsageError(
                    f"The checkpoint {self.folder} was made with {name}={stored.get(name)}, not {value}: "
                    "use the same setting or another checkpoint."
                )
        return query

    def _next_generation(self) -> int:
        path = self.own / "generation"
        generation = int(path.read_text()) + 1 if path.exists() else 1
        replace_text(path, str(generation))
        return generation


def replace_text(path: Path, text: str) -> None:
    """Replaces a file's content so that a reader sees the old or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)
