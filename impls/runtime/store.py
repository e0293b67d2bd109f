"""One worker's state in one LMDB environment: bins, queue, outbox and epoch commit together.

Keys begin with one byte that names the table; bins are two big-endian bytes, so a bin is one key range.
"""

import json
import os
import shutil
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import lmdb

from impls.errors import StateError

__all__ = [
    "FORMAT",
    "MAP_BYTES",
    "META",
    "OUTBOX",
    "QUEUE",
    "SIZE",
    "STATE",
    "Meta",
    "Store",
    "at_epoch",
    "bin_key",
    "bin_range",
    "new_meta",
    "read_meta",
    "store_path",
    "wipe",
    "write_meta",
]

FORMAT = 1
META = b"\x00"
STATE = b"\x01"
QUEUE = b"\x02"
OUTBOX = b"\x03"
SIZE = b"\x04"
MAP_BYTES = 1 << 30

_open: dict[tuple[int, int], "Store"] = {}
_open_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Meta:
    """What an environment says of itself: the query and worker it belongs to and the last epoch committed in it."""

    query: str
    worker: int
    epoch: int
    generation: int
    store: str
    format: int = FORMAT


def store_path(state_dir: str | Path, worker: int) -> Path:
    """Returns the folder of a worker's environment."""
    return Path(state_dir) / f"worker-{worker:04d}"


def bin_key(table: bytes, bin_: int) -> bytes:
    """Returns the prefix of a bin's keys in a table."""
    return table + bin_.to_bytes(2, "big")


def bin_range(table: bytes, bin_: int) -> tuple[bytes, bytes]:
    """Returns the half-open key range of a bin in a table."""
    return bin_key(table, bin_), bin_key(table, bin_ + 1)


class Store:
    """A worker's open environment; `with Store.open(path)` closes it, one open per path and process.

    No `writemap`: a full disk is then an exception and not a SIGBUS. A full map is opened again at twice its size.
    """

    def __init__(self, path: Path, env: lmdb.Environment, inode: tuple[int, int]):
        self.path, self.env, self._inode, self._users = path, env, inode, 1

    @classmethod
    def open(cls, path: Path, *, map_bytes: int = MAP_BYTES, sync: bool = False) -> "Store":
        """Opens or creates the environment; raises StateError when it is not a usable LMDB environment."""
        path.mkdir(parents=True, exist_ok=True)
        folder = path.stat()
        inode = (folder.st_dev, folder.st_ino)
        with _open_lock:
            if inode in _open:
                _open[inode]._users += 1
                return _open[inode]
            size = max(map_bytes, _file_bytes(path) + (map_bytes >> 1))
            try:
                env = lmdb.open(str(path), map_size=size, sync=sync, metasync=sync, readahead=False, max_readers=512)
                env.reader_check()
            except (lmdb.Error, OSError) as error:
                raise StateError(f"The state in {path} cannot be opened: {error}.") from error
            _open[inode] = cls(path, env, inode)
            return _open[inode]

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the environment when its last user in this process is done."""
        with _open_lock:
            self._users -= 1
            if self._users == 0:
                del _open[self._inode]
                self.env.close()

    @property
    def map_bytes(self) -> int:
        """Size of the map: the most that the environment can hold until it is opened with a larger one."""
        return int(self.env.info()["map_size"])

    def adopt_size(self) -> None:
        """Takes over the map size that another process has set."""
        self.env.set_mapsize(0)

    @contextmanager
    def reading(self) -> Iterator[lmdb.Transaction]:
        """Opens a read transaction on the last commit."""
        try:
            txn = self.env.begin(buffers=True)
        except lmdb.MapResizedError:
            self.adopt_size()
            txn = self.env.begin(buffers=True)
        with txn:
            yield txn

    def begin(self) -> lmdb.Transaction:
        """Begins the write transaction; the caller commits or aborts it."""
        try:
            return self.env.begin(write=True, buffers=True)
        except lmdb.MapResizedError:
            self.adopt_size()
            return self.env.begin(write=True, buffers=True)

    def used_bytes(self) -> int:
        """Returns the bytes of all pages ever used; pages freed since are counted until they are used again."""
        info, stat = self.env.info(), self.env.stat()
        return int(info["last_pgno"] + 1) * int(stat["psize"])


def _file_bytes(path: Path) -> int:
    data = path / "data.mdb"
    return data.stat().st_size if data.exists() else 0


def read_meta(txn: lmdb.Transaction) -> Meta | None:
    """Returns the environment's meta record, None for a new environment; raises StateError for another format."""
    raw = txn.get(META)
    if raw is None:
        return None
    data = json.loads(bytes(raw))
    if data.get("format") != FORMAT:
        raise StateError(f"The state has format {data.get('format')}; this version reads format {FORMAT}.")
    return Meta(**data)


def write_meta(txn: lmdb.Transaction, meta: Meta) -> None:
    """Writes the meta record."""
    txn.put(META, json.dumps(asdict(meta)).encode())


def new_meta(query: str, worker: int, epoch: int, generation: int) -> Meta:
    """Returns the meta record of a new environment with an identity of its own."""
    return Meta(query, worker, epoch, generation, uuid.uuid4().hex)


def at_epoch(meta: Meta, epoch: int, generation: int) -> Meta:
    """Returns the meta record as it stands after an epoch."""
    return replace(meta, epoch=epoch, generation=generation)


def wipe(path: Path) -> None:
    """Deletes an environment's files; it must not be open in this process."""
    doomed = path.with_name(f".{path.name}-{os.getpid()}-{uuid.uuid4().hex[:8]}")
    if path.exists():
        path.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)
