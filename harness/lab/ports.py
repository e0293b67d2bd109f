"""Free ports for servers that other programs must find again: outside those that the kernel gives away."""

import contextlib
import random
import socket

from impls.errors import UsageError

LOOPBACK = "127.0.0.1"
_FROM, _BELOW = 20_000, 32_768  # below what Linux, macOS and Windows give to clients and to servers without a wish
_TRIES = 1_000


def free_ports(host: str, number: int = 1) -> list[int]:
    """Returns different ports of an address of this machine on which nobody listens.

    A server opens its port seconds after it was chosen. One of those that the kernel gives away may belong to somebody
    else by then, to a client or to a server without a wish, of which Spark has one per task.

    Raises:
        UsageError: there are none.
    """
    ports: list[int] = []
    for port in random.SystemRandom().sample(range(_FROM, _BELOW), _TRIES):
        with contextlib.suppress(OSError), socket.create_server((host, port)):
            ports.append(port)
        if len(ports) == number:
            return ports
    raise UsageError(f"No port of {host} from {_FROM} to {_BELOW - 1} is free.")
