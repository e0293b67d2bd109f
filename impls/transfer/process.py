"""The process that hands out a host's bins, and the files by which the host's tasks find it.

It ends with the executor that started it, when a later one replaces it, and when no task has asked for it for a while:
then the query has ended.

usage: python -m impls.transfer.process, with a `Charge` as JSON on standard input.

The files are in the host's state folder, readable to its user only, without secrets: a lock that the server holds as
long as it lives, and what it tells of itself.
"""

import contextlib
import fcntl
import hashlib
import os
import resource
import sys
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from impls.closing import ended_on_error
from impls.protocol.jsontext import from_text, to_text
from impls.sockets import raise_file_limit
from impls.transfer.owner import Owner
from impls.transfer.server import BinServer
from impls.transfer.settings import Transfer

_AGAIN_S = 3.0  # between two starts of a server; twice as long after each that did not come up
_AGAIN_MAX_S = 300.0
_UNUSED_MAX_S = 86_400.0
_NOTE_BYTES = 48


class Places:
    """The files of one query and generation in a host's state folder."""

    def __init__(self, state_dir: Path, query: str, generation: int):
        self._folder, self._generation = state_dir, generation
        self._stem = f".transfer-{hashlib.sha256(query.encode()).hexdigest()[:12]}-"
        self.lock = self._path(generation, "lock")
        self.told = self._path(generation, "json")
        self.log = self._path(generation, "log")

    def _path(self, generation: int, kind: str) -> Path:
        return self._folder / f"{self._stem}{generation}.{kind}"

    def take(self) -> int | None:
        """Returns the descriptor of the lock, taken; None while a server has it, or until it is time to start another.

        What a server that has ended told of itself is forgotten. Those that never came up are tried ever more rarely.
        """
        fd = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with ended_on_error(partial(os.close, fd)):  # else this process has the lock for ever
            taken = self._taken(fd)
        if not taken:
            os.close(fd)
        return fd if taken else None

    def _taken(self, fd: int) -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.utime(fd)  # somebody needs it
            return False
        self.told.unlink(missing_ok=True)
        last, tries, _ = self._noted(fd)
        if 0 <= time.monotonic() - last < min(_AGAIN_S * 2**tries, _AGAIN_MAX_S):
            return False
        found = os.fstat(fd)
        unused_s = min((time.time_ns() - found.st_mtime_ns) / 1e9, _UNUSED_MAX_S) if found.st_size else 0.0
        self._note(fd, tries + 1, unused_s)
        return True

    def came_up(self) -> float:
        """Notes that the server listens, and returns for how many seconds nobody needed one before it was started."""
        with self.lock.open("r+b", buffering=0) as file:
            *_, unused_s = self._noted(file.fileno())
            self._note(file.fileno(), 0, unused_s)
        return unused_s

    def used(self) -> int:
        """Returns a number that changes whenever a task asks for the server."""
        return self.lock.stat().st_mtime_ns

    @staticmethod
    def _noted(fd: int) -> tuple[float, int, float]:
        """Returns what the last start has noted; a note that is torn, as by a full disk, counts as none."""
        try:
            last, tries, unused_s = os.pread(fd, _NOTE_BYTES, 0).split()
            return float(last), int(tries), float(unused_s)
        except ValueError:
            return float("-inf"), 0, 0.0

    @staticmethod
    def _note(fd: int, tries: int, unused_s: float) -> None:
        os.pwrite(fd, f"{time.monotonic():.3f} {tries} {unused_s:.3f}".ljust(_NOTE_BYTES).encode(), 0)

    def last_words(self) -> str:
        """Returns the last line of the log, "" for none."""
        try:
            return next(reversed(self.log.read_text(errors="replace").strip().splitlines()), "")
        except OSError:
            return ""

    def tell(self, what: dict[str, Any]) -> None:
        """Replaces what the server tells of itself."""
        part = self.told.with_suffix(".part")
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, to_text(what))
        finally:
            os.close(fd)
        part.rename(self.told)

    def read(self) -> dict[str, Any]:
        """Returns what the server tells of itself, nothing before it does."""
        try:
            found: dict[str, Any] = from_text(self.told.read_bytes())
        except (OSError, ValueError):
            return {}
        return found

    def is_replaced(self) -> bool:
        """Returns whether a server of a later generation was started here, or the folder is gone."""
        return not self.lock.exists() or max(self._generations(), default=self._generation) > self._generation

    def forget_earlier(self) -> None:
        """Deletes the files of earlier generations."""
        for generation in self._generations():
            if generation < self._generation:
                for kind in ("lock", "json", "log"):
                    with contextlib.suppress(OSError):
                        self._path(generation, kind).unlink(missing_ok=True)

    def _generations(self) -> list[int]:
        names = [path.stem.removeprefix(self._stem) for path in self._folder.glob(f"{self._stem}*.lock")]
        return [int(name) for name in names if name.isdigit()]


_TICK_MS = 500
_PATIENCE = 3.0
_FULL, _FULL_LOOKS = 0.97, 6  # of the memory; looks in a row


@dataclass(frozen=True)
class Charge:
    """What the process is to do: for which query, generation, host and state folder, and whose end it follows."""

    transfer: Transfer
    query: str
    generation: int
    host: str
    state_dir: str
    owner: Owner

    def to_json(self) -> bytes:
        """Returns the charge, secrets included."""
        data = {name: value for name, value in vars(self).items() if name not in {"transfer", "owner"}}
        return to_text({**data, "transfer": self.transfer.to_json().decode(), "owner": asdict(self.owner)})

    @classmethod
    def from_json(cls, text: bytes) -> "Charge":
        """Reads what `to_json` wrote."""
        data: dict[str, Any] = from_text(text)
        owner, transfer = Owner(**data.pop("owner")), Transfer.from_json(data.pop("transfer").encode())
        return cls(transfer, owner=owner, **data)


def main() -> None:
    """Serves until the owner ends, a later generation is there, or nobody needs it any more."""
    charge = Charge.from_json(sys.stdin.buffer.read())
    places = Places(Path(charge.state_dir), charge.query, charge.generation)
    end = charge.owner.watch()
    if end is None:
        return
    _set_limits(charge.transfer.memory_bytes)
    server = _listening(charge)
    need = _Need(places, charge.transfer.unused_s)
    places.forget_earlier()
    told: dict[str, Any] = {}
    full = Full(charge.transfer.memory_bytes)
    while not (places.is_replaced() or need.is_over()):
        now = {"address": server.address, "pid": os.getpid(), "host": charge.host, **server.counts.now()}
        if now != told:
            with contextlib.suppress(OSError):  # a full disk
                places.tell(now)
                told = now
        if end.wait(_TICK_MS) or server.exhausted.is_set() or full.is_over():
            break
        server.give_up_idle()
    os._exit(0)  # a shutdown would wait for pullers


class _Need:
    """Whether tasks still ask for the server; where they came rarely before, it waits three times as long."""

    def __init__(self, places: Places, unused_s: float):
        self._places = places
        self._most_s = max(unused_s, _PATIENCE * places.came_up())
        self._seen, self._since = places.used(), time.monotonic()

    def is_over(self) -> bool:
        """Returns whether nobody has asked for so long."""
        with contextlib.suppress(FileNotFoundError):
            if (used := self._places.used()) != self._seen:
                self._seen, self._since = used, time.monotonic()
        return time.monotonic() - self._since > self._most_s


class Full:
    """Whether a process's data have no room to grow any more, so that it can serve nobody, and stays so."""

    def __init__(self, memory_bytes: int):
        self._most, self._times = _FULL * memory_bytes, 0

    def is_over(self, used: int | None = None) -> bool:
        """Returns whether it was full at each of the last looks; `used` are bytes, by default what the system says."""
        self._times = self._times + 1 if (data_bytes() if used is None else used) > self._most else 0
        return self._times >= _FULL_LOOKS


def data_bytes() -> int:
    """Returns the bytes of this process's data, which RLIMIT_DATA limits; 0 where the system does not tell."""
    with contextlib.suppress(OSError, ValueError):
        lines = Path("/proc/self/status").read_text().splitlines()
        return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData:")), 0)
    return 0


def _listening(charge: Charge) -> BinServer:
    query, generation, host = charge.query, charge.generation, charge.host
    try:
        return BinServer(charge.transfer, query=query, generation=generation, host=host, state_dir=charge.state_dir)
    except (pa.ArrowException, OSError) as error:
        sys.exit(f"Nothing can listen at {host}, by which Spark knows this host: {error}.")


def _set_limits(memory_bytes: int) -> None:
    """Allows many connections, and no more memory: gRPC reads any message whole, whoever sends it."""
    raise_file_limit()
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main()
