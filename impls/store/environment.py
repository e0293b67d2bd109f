"""One worker's state in one LMDB environment: bins, queue, outbox and epoch commit together."""

import contextlib
import os
import shutil
import sys
import threading
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

import lmdb

from impls.closing import Closing
from impls.errors import CorruptStateError, StateError
from impls.protocol.jsontext import from_text, to_text
from impls.store.checked import get_checked, put_checked
from impls.store.tables import META

MAP_BYTES = 1 << 30
_READ_BYTES = 1 << 40
DAMAGE = (CorruptStateError, lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.InvalidError, lmdb.PanicError)
_READERS = 512
_LOCK_BYTES = 64 * (_READERS + 8)  # a cache line per reader, and the head
_STAT_BLOCK = 512

_open: dict[tuple[int, int], "Store"] = {}
_open_lock = threading.Lock()


def store_path(state_dir: str | Path, worker: int) -> Path:
    """Returns the folder of a worker's environment."""
    return Path(state_dir) / f"worker-{worker:04d}"


class Store(Closing):
    """A worker's open environment; `with Store.open(path)` closes it, one open per path and process.

    No `writemap`: a full disk is then an exception and not a SIGBUS. A full map is opened again at twice its size.
    """

    def __init__(self, path: Path, env: lmdb.Environment, inode: tuple[int, int]):
        self.path, self.env, self._inode, self._users = path, env, inode, 1
        self._reaches = 0  # bytes that the file is known to have: it is asked when it has to grow

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        map_bytes: int = MAP_BYTES,
        sync: bool = False,
        create: bool = True,
        extended: bool = False,
        readonly: bool = False,
    ) -> "Store":
        """Opens or creates the environment; `extended` says that `extend_file` follows every commit.

        With `readonly` nothing is created or written, but a reader's place in the lock file.

        Raises CorruptStateError when it is not a usable LMDB environment, or not there and not to be created, and
        StateError when the folder cannot be written.
        """
        if (readonly or not create) and not (path / "data.mdb").exists():
            raise CorruptStateError(f"There is no state in {path}.")
        try:
            folder = _folder(path)
        except OSError as error:
            raise StateError(f"The state folder {path} cannot be made: {error.strerror}.") from error
        inode = (folder.st_dev, folder.st_ino)
        with _open_lock:
            if inode in _open:
                _open[inode]._users += 1
                return _open[inode]
            size = max(map_bytes, _file_bytes(path) + (map_bytes >> 1))
            env = _open_readonly(path, size) if readonly else _open_writable(path, size, sync=sync, extended=extended)
            if readonly and _replaced(path, inode):
                env.close()
                raise CorruptStateError(f"The state in {path} is being replaced.")
            _open[inode] = cls(path, env, inode)
            return _open[inode]

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

    def reading(self, *, buffers: bool = True) -> AbstractContextManager[lmdb.Transaction]:
        """Opens a read transaction on the last commit; without `buffers` it returns bytes objects."""
        return self._begin(write=False, buffers=buffers)

    def begin(self) -> lmdb.Transaction:
        """Begins the write transaction; the caller commits or aborts it."""
        return self._begin(write=True, buffers=True)

    def begin_inner(self, txn: lmdb.Transaction) -> lmdb.Transaction:
        """Begins a transaction inside the write transaction; the caller commits or aborts it."""
        return self.env.begin(write=True, buffers=True, parent=txn)

    def _begin(self, *, write: bool, buffers: bool) -> lmdb.Transaction:
        begin: Callable[..., lmdb.Transaction] = self.env.begin  # its own types ask for literals
        try:
            return begin(write=write, buffers=buffers)
        except lmdb.MapResizedError:
            self.env.set_mapsize(0)  # takes over the size that another process has set
            return begin(write=write, buffers=buffers)

    def extend_file(self) -> None:
        """Lets the file reach to the end of its last page, which LMDB may have used and freed without writing it.

        A file that is shorter has then been truncated.
        """
        needed = _needed_bytes(self.env)
        if needed <= self._reaches:
            return
        if _file_bytes(self.path) < needed:
            os.truncate(self.path / "data.mdb", needed)
        self._reaches = needed

    def used_bytes(self) -> int:
        """Returns the bytes of all pages ever used; pages freed since are counted until they are used again."""
        return _needed_bytes(self.env)


def _allocate_lock(path: Path) -> None:
    """Gives the table of readers its space on the disk.

    It is written through a map: where it had holes and the disk is full, that ends the process (SIGBUS).
    """
    if sys.platform != "linux":
        return
    with (path / "lock.mdb").open("ab") as file:
        found = os.fstat(file.fileno())
        if found.st_size == 0 or found.st_blocks * _STAT_BLOCK < found.st_size:
            os.posix_fallocate(file.fileno(), 0, found.st_size or _LOCK_BYTES)


def _open_writable(path: Path, size: int, *, sync: bool, extended: bool) -> lmdb.Environment:
    try:
        _allocate_lock(path)
        env = lmdb.open(str(path), map_size=size, sync=sync, metasync=sync, readahead=False, max_readers=_READERS)
    except (lmdb.InvalidError, lmdb.CorruptedError, lmdb.VersionMismatchError) as error:
        raise CorruptStateError(f"The state in {path} is damaged: {error}.") from error
    except (lmdb.Error, OSError) as error:
        raise StateError(f"The state in {path} cannot be opened: {error}.") from error
    env.reader_check()
    if extended and _needed_bytes(env) > _file_bytes(path) > 0:
        env.close()
        raise CorruptStateError(f"The state in {path} is truncated.")
    return env


def _open_readonly(path: Path, size: int) -> lmdb.Environment:
    """Opens it with a map that no writer outgrows: to make one larger would take it from under other readers here."""
    for room in (max(size, _READ_BYTES), size):
        with contextlib.suppress(lmdb.MemoryError):  # addresses are limited, as by ulimit -v
            return _mapped_readonly(path, room)
    raise StateError(
        f"There are no addresses for the {size} bytes of the state in {path}: raise the limit (ulimit -v)."
    )


def _mapped_readonly(path: Path, size: int) -> lmdb.Environment:
    try:
        return lmdb.open(str(path), map_size=size, readonly=True, create=False, readahead=False, max_readers=_READERS)
    except lmdb.MemoryError:
        raise
    except (lmdb.Error, OSError) as error:
        raise CorruptStateError(f"The state in {path} cannot be read: {error}.") from error


def _replaced(path: Path, inode: tuple[int, int]) -> bool:
    """Returns whether another folder has taken a place: files of both may have been opened."""
    try:
        folder = path.stat()
    except FileNotFoundError:
        return True
    return (folder.st_dev, folder.st_ino) != inode


def _needed_bytes(env: lmdb.Environment) -> int:
    return int((env.info()["last_pgno"] + 1) * env.stat()["psize"])


def _folder(path: Path) -> os.stat_result:
    """Returns the status of a folder, made if it is missing."""
    try:
        return path.stat()
    except FileNotFoundError:
        path.mkdir(parents=True, exist_ok=True)
        return path.stat()


def _file_bytes(path: Path) -> int:
    try:
        return (path / "data.mdb").stat().st_size
    except FileNotFoundError:
        return 0


def set_aside(path: Path) -> Path | None:
    """Renames an environment's folder and returns its new name, None when there is no such folder.

    A process that has it open keeps its files.
    """
    aside = path.with_name(f".{path.name}-{os.getpid()}-{uuid.uuid4().hex[:8]}.aside")
    try:
        path.rename(aside)
    except FileNotFoundError:
        return None
    return aside


def wipe(path: Path) -> None:
    """Deletes an environment's files, and what earlier rebuilds of it have set aside; it must not be open here."""
    set_aside(path)
    delete_aside(path)


def delete_aside(path: Path) -> None:
    """Deletes what earlier rebuilds of an environment have set aside."""
    for doomed in path.parent.glob(f".{path.name}-*.aside"):
        shutil.rmtree(doomed, ignore_errors=True)


FORMAT = 6


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
    if data.get("format") != FORMAT:
        raise StateError(f"The state has format {data.get('format')}; this version reads format {FORMAT}.")
    return Meta(**data)


def write_meta(txn: lmdb.Transaction, meta: Meta) -> None:
    """Writes the meta record."""
    put_checked(txn, META, to_text(meta))
