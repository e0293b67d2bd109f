"""The manifest: where the snapshot of every bin is, and from which epoch on the changelog must be replayed."""

import base64
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from impls.durability.files import Files
from impls.errors import ADVICE, UsageError

__all__ = ["NAME", "Manifest", "SnapshotName", "read_manifest", "write_manifest"]

NAME = "manifest.json"
FORMAT = 1
SnapshotName = tuple[int, int, int]
_ARRAYS = ("base", "file_epoch", "state_worker", "queue_worker", "generation")


@dataclass(frozen=True)
class Manifest:
    """Arrays have one int64 per bin, shape (B,).

    Attributes:
        query: identity of the query.
        base: epoch whose end the bin's snapshot shows, -1 for the state that the operator creates.
        file_epoch: epoch in the snapshot files' names, -1 for none; below `base` when nothing has changed since.
        generation: of the driver that had the snapshot made, the last part of the files' names.
        state_worker, queue_worker: workers in the names of the files with state and queue; the same for a bin at rest.
    """

    query: str
    base: NDArray[np.int64]
    file_epoch: NDArray[np.int64]
    state_worker: NDArray[np.int64]
    queue_worker: NDArray[np.int64]
    generation: NDArray[np.int64]

    @classmethod
    def new(cls, query: str, bins: int) -> "Manifest":
        """Returns the manifest of a query without snapshots."""
        return cls(query, *(np.full(bins, -1, np.int64) for _ in _ARRAYS))

    def state_file(self, bin_: int) -> SnapshotName:
        """Returns the name of the file with a bin's state."""
        return int(self.file_epoch[bin_]), int(self.state_worker[bin_]), int(self.generation[bin_])

    def queue_file(self, bin_: int) -> SnapshotName:
        """Returns the name of the file with a bin's queue."""
        return int(self.file_epoch[bin_]), int(self.queue_worker[bin_]), int(self.generation[bin_])

    def files(self) -> set[SnapshotName]:
        """Returns the names of every snapshot file in use."""
        used = np.flatnonzero(self.file_epoch >= 0).tolist()
        return {name for bin_ in used for name in (self.state_file(bin_), self.queue_file(bin_))}


def write_manifest(files: Files, manifest: Manifest) -> None:
    """Replaces the manifest."""
    arrays = {name: base64.b64encode(getattr(manifest, name).astype("<i8").tobytes()).decode() for name in _ARRAYS}
    files.write(NAME, json.dumps({"format": FORMAT, "query": manifest.query, **arrays}).encode())


def read_manifest(files: Files, query: str, bins: int) -> Manifest:
    """Returns the manifest, or that of a query without snapshots when there is none yet.

    Raises UsageError that names the file when it is unreadable, of another format or of another query.
    """
    raw = files.read(NAME)
    if raw is None:
        return Manifest.new(query, bins)
    path = files.path(NAME)
    try:
        data: dict[str, Any] = json.loads(raw)
        version, owner = data["format"], data["query"]
        arrays = [np.frombuffer(base64.b64decode(data[name]), "<i8") for name in _ARRAYS]
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"The manifest {path} is damaged: {ADVICE}.") from error
    if version != FORMAT:
        raise UsageError(f"The manifest {path} has format {version}; this version reads format {FORMAT}.")
    if owner != query or any(len(array) != bins for array in arrays):
        raise UsageError(f"The manifest {path} belongs to another query: use this query's own checkpoint folder.")
    return Manifest(query, *arrays)
