"""A host with environments of its own making and its server, for tests of server and client."""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hosts import A, until
from pyarrow import flight

from impls.store.environment import Meta, Store, store_path, write_meta
from impls.store.state import BinState
from impls.transfer.client import fetch, offer
from impls.transfer.process import Places
from impls.transfer.settings import Transfer
from impls.transfer.ticket import KeyRequest, Ticket

__all__ = ["BINS", "EPOCH", "SETTINGS", "Host", "fill", "pulled"]

BINS, EPOCH = 8, 5
SETTINGS = Transfer.new()


def fill(folder: Path, worker: int, epoch: int, *, query: str = "q", dense: int = 0) -> None:
    """Makes a worker's environment at the end of an epoch: 200 entries in each bin, or so many dense slots."""
    with Store.open(store_path(folder, worker)) as store, store.begin() as txn:
        state = BinState(txn, BINS)
        for bin_ in range(BINS):
            if dense:
                state.create_dense(bin_, dense)
            else:
                state.create_entries(bin_, [(n.to_bytes(4, "big"), b"%d" % worker) for n in range(200)])
        state.write_sizes()
        write_meta(txn, Meta.new(query, worker, epoch, 2))


def pulled(transfer: Transfer, address: str, ticket: Ticket, target: Path) -> int:
    """Pulls a ticket's bins into a new environment and returns their bytes."""
    with Store.open(target) as store, store.begin() as txn:
        return sum(size for _, size in fetch(transfer, address, ticket, txn, expected_bytes=1 << 20))


@dataclass
class Host:
    """Environments before epoch 5, and a server; each worker but the first has something that it is refused for."""

    folder: Path
    transfer: Transfer = SETTINGS
    name: str = A
    dense: int = 0

    def __post_init__(self) -> None:
        self.places = Places(self.folder, "q", 2)
        fill(self.folder, 0, EPOCH - 1, dense=self.dense)
        fill(self.folder, 1, EPOCH - 1, query="another query")
        fill(self.folder, 2, EPOCH - 2)
        fill(self.folder, 3, EPOCH + 1)
        self.start()

    def start(self) -> None:
        where = {"query": "q", "generation": 2, "host": self.name, "state_dir": str(self.folder)}
        self.address = until("a server", lambda: offer(self.transfer, **where))

    @property
    def told(self) -> dict[str, Any]:
        return self.places.read()

    def memory(self) -> int:
        """Bytes of the server that are its own: without files that it reads."""
        [line] = [row for row in Path(f"/proc/{self.told['pid']}/status").read_text().splitlines() if "RssAnon" in row]
        return int(line.split()[1]) << 10

    def ticket(self, **other: Any) -> Ticket:
        return replace(Ticket("q", 2, self.name, EPOCH, 0, tuple(range(BINS))), **other)

    def look(self, **other: Any) -> KeyRequest:
        return replace(KeyRequest("q", 2, self.name, 0, "json", ((0, bytes(4)),)), **other)

    def ask(self, raw: bytes, **options: Any) -> None:
        with flight.FlightClient(self.address, **options) as client:
            client.do_get(flight.Ticket(raw)).read_all()

    def pull(self, target: Path) -> int:
        """Pulls every bin of worker 0 with a right ticket and returns the bytes."""
        return pulled(self.transfer, self.address, self.ticket(), target)

    def state(self) -> str:
        """A digest of every environment's content."""
        files = sorted(self.folder.rglob("data.mdb"))
        assert len(files) == 4
        return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
