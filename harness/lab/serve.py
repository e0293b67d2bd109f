"""Runs one service at a given address until a signal ends it, or it ends: the services of docker/compose.yaml."""

import argparse
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from generators.stdin import Stop
from harness.lab.bringup import embedded_broker
from harness.lab.hosts.programs import spark_master, spark_worker
from harness.lab.hosts.settings import Settings
from harness.lab.ports import LOOPBACK
from harness.lab.redis_server import RedisServer
from impls.errors import UsageError

_READY = "ready"  # a file in the service's folder, there while it answers
_LOOK_S = 0.5


class _Server(Protocol):
    def start(self) -> None:
        """Returns when it answers; raises UsageError."""

    def stop(self) -> None:
        """Ends it."""

    @property
    def running(self) -> bool:
        """Whether it lives."""


def main(arguments: Sequence[str]) -> int:
    """Serves and returns the exit code: 0 ended as asked, 1 ended by itself, 2 for bad input."""
    options = _options(arguments)
    told = Stop.on_signals()
    ready = options.folder / _READY
    try:
        _check_free(options.host, options.port)
        options.folder.mkdir(parents=True, exist_ok=True)
        ready.unlink(missing_ok=True)
        server = _server(options)
        server.start()
    except UsageError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    where = f"on port {options.port}" if options.port else f"at {options.host}"
    ready.touch()  # before the word, which may be read at once
    sys.stdout.write(f"{options.service} answers {where}\n")
    sys.stdout.flush()
    while server.running and not told.wait(_LOOK_S):
        pass
    ready.unlink()
    server.stop()
    return 0 if told.is_set() else 1


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="serve", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("service", choices=["broker", "redis", "master", "worker"])
    parser.add_argument("--host", default=LOOPBACK, help="address or name of this host, by which clients reach it")
    parser.add_argument("--port", type=int, default=0, help="needed by all but a worker")
    parser.add_argument("--folder", type=Path, required=True, help="for data and log")
    parser.add_argument("--master", default="", help="of a worker: spark://HOST:PORT")
    parser.add_argument("--cores", type=int, default=2, help="of a worker: tasks that it runs at once")
    parser.add_argument("--memory", default="1g", help="of a worker: for executors")
    options = parser.parse_args(arguments)
    if (needed := "master" if options.service == "worker" else "port") and not getattr(options, needed):
        parser.error(f"a {options.service} needs --{needed}")
    return options


def _server(options: argparse.Namespace) -> _Server:
    place = {"host": options.host, "port": options.port}
    match options.service:
        case "broker":
            return embedded_broker(options.folder, **place)
        case "redis":
            return RedisServer(options.folder, **place)
        case "master":
            return spark_master(options.folder, **place)
    size = Settings(1, cores=options.cores, memory=options.memory)
    return spark_worker(options.folder, options.host, size, master=options.master)


def _check_free(host: str, port: int) -> None:
    try:
        socket.create_server((host, port)).close()
    except (OSError, OverflowError) as error:
        raise UsageError(f"The port {port} of {host} cannot be listened on ({error}): choose another.") from error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
