"""Where a reader of keys finds workers' environments: on this host, or behind the servers of others."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from impls.errors import CorruptStateError, StateError, UsageError
from impls.protocol.places import BinPlace
from impls.spark.readiness import host_name
from impls.store.environment import DAMAGE, store_path
from impls.store.lookup import Key, KeyEntries, Seen, look, looking
from impls.transfer.client import look_from
from impls.transfer.settings import Transfer
from impls.transfer.ticket import KeyRequest, RefusedError


@dataclass(frozen=True)
class Environments:
    """look() shows what a worker's environment has of keys.

    Attributes:
        query, generation: whose environments.
        state_dir: their folder.
        transfer: how hosts hand out state; None where there is one host.
        servers: returns the address of each host's server.
    """

    query: str
    generation: int
    state_dir: str
    transfer: Transfer | None
    servers: Callable[[], Mapping[str, str]]

    def look(self, worker: int, home: str, values: str, keys: tuple[Key, ...]) -> Seen:
        """Returns what an environment has of keys, see `impls.store.lookup.look`.

        Raises CorruptStateError or StateError for one that cannot be read now, UsageError for more than fits into the
        answer of another host.
        """
        if not home or home == host_name():
            with looking(store_path(Path(self.state_dir) / home, worker)) as txn:
                return look(txn, self.query, values, keys)
        address = self.servers().get(home, "")
        if self.transfer is None or not address:
            raise CorruptStateError(f"Worker {worker} is on the host {home}, which hands out no state.")
        try:
            asked = KeyRequest(self.query, self.generation, home, worker, values, keys)
            return look_from(self.transfer, address, asked)
        except RefusedError as error:
            if error.reason == "large":
                raise UsageError(
                    f"Worker {worker} is on the host {home}, and {error}: ask for fewer keys, or read "
                    "the checkpoint by impls.read_state, or ./inv state --epoch."
                ) from error
            raise error.kind(f"Worker {worker} is on the host {home}, but {error}.") from error


class Where(NamedTuple):
    """What a key was found with.

    Attributes:
        found: what an environment has of it.
        epoch: the last epoch of which that is everything.
    """

    found: KeyEntries
    epoch: int


_Owner = tuple[int, str]  # a worker and its host


class Views:
    """What environments have of keys, each looked at once.

    Args:
        environments: where they are.
        values: what entries are.
        keys: each with the place of its bin.
    """

    def __init__(self, environments: Environments, values: str, keys: Iterable[tuple[Key, BinPlace]]):
        asked = defaultdict[_Owner, dict[Key, None]](dict)
        for key, place in keys:
            asked[_location(place)][key] = None
            if place.target is not None:
                asked[place.target, place.homes[1]][key] = None
        self._seen: dict[_Owner, Seen | Exception] = {}
        self._found: dict[tuple[_Owner, Key], KeyEntries] = {}
        for owner, own in asked.items():
            try:
                seen = environments.look(*owner, values, tuple(own))
            except (*DAMAGE, StateError) as error:  # which matters where the other owner does not have the bin
                self._seen[owner] = error
            else:
                self._seen[owner] = seen
                self._found |= {(owner, key): found for key, found in zip(own, seen.keys, strict=True)}

    def of(self, key: Key, place: BinPlace) -> Where:
        """Returns what the owner of a key's bin has; raises what looking there has raised.

        A bin under way is at its new owner once that has begun the epoch and has it.
        """
        if place.target is not None:
            owner = place.target, place.homes[1]
            seen = self._seen[owner]
            if isinstance(seen, Seen) and seen.begun >= place.epoch and self._found[owner, key].there:
                return Where(self._found[owner, key], min(seen.epoch, place.epoch))
        owner = _location(place)
        seen = self._seen[owner]
        if isinstance(seen, Exception):
            raise seen
        before = place.epoch if place.target is None else place.epoch - 1
        return Where(self._found[owner, key], min(seen.epoch, before))


def _location(place: BinPlace) -> _Owner:
    return place.location, place.homes[0]
