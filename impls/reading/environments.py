"""Where a reader of keys finds workers' environments: on this host, or behind the servers of others."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import BoundedSemaphore
from typing import NamedTuple

from impls.errors import CorruptStateError, StateError, UsageError
from impls.protocol.places import BinPlace
from impls.spark.readiness import host_name
from impls.store.environment import DAMAGE, store_path
from impls.store.lookup import Key, KeyEntries, Seen, look, looking
from impls.transfer.client import SilentError, look_from
from impls.transfer.settings import Transfer
from impls.transfer.ticket import KeyRequest, RefusedError

_AT_ONCE = 8  # readers: an environment has places for some hundred, and workers that pull need theirs


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
    _turns: BoundedSemaphore = field(default_factory=lambda: BoundedSemaphore(_AT_ONCE), init=False)

    def look(self, worker: int, home: str, values: str, keys: tuple[Key, ...]) -> Seen:
        """Returns what an environment has of keys, see `impls.store.lookup.look`.

        Raises CorruptStateError or StateError for one that cannot be read now, SilentError for a host that does not
        answer, UsageError for more than fits into the answer of another host.
        """
        if not home or home == host_name():
            with self._turns, looking(store_path(Path(self.state_dir) / home, worker)) as txn:
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


class _Look(NamedTuple):
    """What one look at an environment has shown of a key, and of the worker's epochs."""

    found: KeyEntries
    epoch: int
    begun: int


class Views:
    """What environments have of keys.

    A bin under way is looked for at its new owner, and only where that does not have it yet at the old one: neither
    damage nor size of a copy that is not needed matters, nor a host that is gone. A host that does not answer is asked
    once.

    Args:
        environments: where they are.
        values: what entries are.
        keys: each with the place of its bin.
    """

    def __init__(self, environments: Environments, values: str, keys: Iterable[tuple[Key, BinPlace]]):
        self._environments, self._values, wanted = environments, values, list(keys)
        self._looks: dict[tuple[_Owner, Key], _Look | Exception] = {}
        self._silent: dict[str, SilentError] = {}
        self._ask((_target(place) or _location(place), key) for key, place in wanted)
        self._ask((_location(place), key) for key, place in wanted if self._arrived(key, place) is None)

    def of(self, key: Key, place: BinPlace) -> Where:
        """Returns what the owner of a key's bin has; raises what looking there has raised.

        A bin under way is at its new owner once that has begun the epoch and has it.
        """
        if (arrived := self._arrived(key, place)) is not None:
            return Where(arrived.found, min(arrived.epoch, place.epoch))
        look = self._looks[_location(place), key]
        if isinstance(look, Exception):
            raise look
        if self._values == "dense" and not look.found.there:
            raise CorruptStateError(f"Bin {key[0]} is not there: the state of worker {place.location} is damaged.")
        return Where(look.found, min(look.epoch, place.epoch if place.target is None else place.epoch - 1))

    def _arrived(self, key: Key, place: BinPlace) -> _Look | None:
        """Returns what the new owner of a bin under way has of a key, None where it does not have the bin yet."""
        owner = _target(place)
        look = None if owner is None else self._looks[owner, key]
        return look if isinstance(look, _Look) and look.begun >= place.epoch and look.found.there else None

    def _ask(self, wanted: Iterable[tuple[_Owner, Key]]) -> None:
        """Looks at each owner once, at all its keys that have not been looked at there."""
        asked = defaultdict[_Owner, dict[Key, None]](dict)
        for owner, key in wanted:
            if (owner, key) not in self._looks:
                asked[owner][key] = None
        for owner, own in asked.items():
            self._looks |= {(owner, key): look for key, look in zip(own, self._look(owner, tuple(own)), strict=True)}

    def _look(self, owner: _Owner, keys: tuple[Key, ...]) -> Sequence[_Look | Exception]:
        """Returns what an owner has of keys, or why it cannot be said, which may not matter."""
        if (silent := self._silent.get(owner[1])) is not None:
            return [silent] * len(keys)
        try:
            seen = self._environments.look(*owner, self._values, keys)
        except SilentError as error:
            self._silent[owner[1]] = error
            return [error] * len(keys)
        except (*DAMAGE, StateError) as error:
            return [error] * len(keys)
        return [_Look(found, seen.epoch, seen.begun) for found in seen.keys]


def _location(place: BinPlace) -> _Owner:
    return place.location, place.homes[0]


def _target(place: BinPlace) -> _Owner | None:
    return None if place.target is None else (place.target, place.homes[1])
