"""Runs a broker or a Redis server on a given port until a signal ends it: the services of docker/compose.yaml."""

import argparse
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from harness.lab.bringup import embedded_broker
from harness.lab.broker import EmbeddedBroker
from harness.lab.redis_server import RedisServer
from impls.errors import UsageError

__all__ = ["main"]

_HOST = "127.0.0.1"


def main(arguments: Sequence[str]) -> int:
    """Serves until SIGTERM or SIGINT and returns the exit code: 0 ended as asked, 2 for bad input."""
    parser = argparse.ArgumentParser(prog="serve", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("service", choices=["broker", "redis"])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True, help="for data and log")
    options = parser.parse_args(arguments)
    told = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: told.set())
    try:
        _check_free(options.port)
        server: EmbeddedBroker | RedisServer
        if options.service == "broker":
            server = embedded_broker(options.folder, port=options.port)
        else:
            server = RedisServer(options.folder, port=options.port)
        server.start()
    except UsageError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(f"{options.service} answers on port {options.port}\n")
    sys.stdout.flush()
    told.wait()
    server.stop()
    return 0


def _check_free(port: int) -> None:
    try:
        socket.create_server((_HOST, port)).close()
    except (OSError, OverflowError) as error:
        raise UsageError(f"The port {port} cannot be listened on ({error}): choose another.") from error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
