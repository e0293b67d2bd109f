"""The process that hands out a host's bins; it ends with the executor that started it, or when a later one replaces it.

usage: python -m impls.transfer.process, with a `Charge` as JSON on standard input.
"""

import contextlib
import os
import resource
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from impls.protocol.jsontext import from_text, to_text
from impls.transfer.owner import Owner
from impls.transfer.places import Places
from impls.transfer.server import BinServer
from impls.transfer.settings import Transfer

__all__ = ["Charge", "main"]

_TICK_MS = 500


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
    """Serves until the owner ends or a later generation is there."""
    charge = Charge.from_json(sys.stdin.buffer.read())
    places = Places(Path(charge.state_dir), charge.query, charge.generation)
    end = charge.owner.watch()
    if end is None:
        return
    _set_limits(charge.transfer.memory_bytes)
    server = _listening(charge)
    places.came_up()
    places.forget_earlier()
    told: dict[str, Any] = {}
    while not places.is_replaced():
        now = {"address": server.address, "pid": os.getpid(), "host": charge.host, **server.counts.now()}
        if now != told:
            with contextlib.suppress(OSError):  # a full disk
                places.tell(now)
                told = now
        if end.wait(_TICK_MS):
            break
        server.give_up_idle()
    os._exit(0)  # a shutdown would wait for pullers


def _listening(charge: Charge) -> BinServer:
    query, generation, host = charge.query, charge.generation, charge.host
    try:
        return BinServer(charge.transfer, query=query, generation=generation, host=host, state_dir=charge.state_dir)
    except (pa.ArrowException, OSError) as error:
        sys.exit(f"Nothing can listen at {host}, by which Spark knows this host: {error}.")


def _set_limits(memory_bytes: int) -> None:
    """Allows many connections, and no more memory: gRPC reads any message whole, whoever sends it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main()
