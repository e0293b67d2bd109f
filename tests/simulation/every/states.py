"""Digests of the states of a small world; what an event has not touched is not read again."""

import hashlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from every.digest import digest_of, of_files
from impls.store.environment import Store, store_path

if TYPE_CHECKING:
    from every.world import World

_COORDINATOR = (
    "hello", "ended", "failed", "needed", "timers_wait", "_order", "_begun", "_settled", "_route", "_switched",
)  # fmt: skip
_KEPT = ("log", "snapshots")  # what a restore reads
Name = tuple[Any, int]


class States:
    """digest() of the world; touch() whenever a task has changed.

    Attributes:
        also: what else later checks depend on, as a function.
    """

    def __init__(self, world: "World", folder: Path):
        self._world, self._folder = world, folder
        self._tasks: dict[Name, bytes] = {}
        self._stores: dict[int, bytes] = {}
        self._files = b""
        self.also: Any = lambda: None

    def touch(self, name: Name, *, stored: bool = False) -> None:
        """Takes in that a task has changed, and maybe what it has stored."""
        self._tasks.pop(name, None)
        if stored:
            self._stores.pop(name[1], None)
            self._files = b""

    def touch_all(self) -> None:
        """Takes in that all tasks are others."""
        self._tasks.clear()
        self._stores.clear()
        self._files = b""

    def lose(self, worker: int) -> None:
        """Deletes the environment of a worker whose task is dead."""
        shutil.rmtree(store_path(self._world.spec.state_dir, worker), ignore_errors=True)
        self._stores.pop(worker, None)

    def digest(self) -> bytes:
        """Returns a digest of all that later events and checks depend on."""
        world, session = self._world, self._world.session
        assert session is not None, "a session has begun"
        found = hashlib.blake2b(digest_size=16)
        known = {name: getattr(world._coordinator, name) for name in _COORDINATOR}
        driver = world.driver.last_epoch, world.driver.controller.to_json(), world._needed
        peers = [(peer.alive, peer.told_gone, peer.inbox, peer.outbox) for peer in session.peers.values()]
        rest = session.positions, session.awake, session.idle, session.dying, session._routed
        failure = world.failure.left, world._durable
        found.update(digest_of((known, driver, session.channels, peers, rest, failure, self.also())))
        for name in session.peers:
            found.update(self._of_task(name))
        for worker in range(len(session.workers)):
            found.update(self._of_store(worker))
        self._files = self._files or of_files(self._folder / "checkpoint" / "rescale", _KEPT)
        found.update(self._files)
        return found.digest()

    def _of_task(self, name: Name) -> bytes:
        if name not in self._tasks:
            session = self._world.session
            assert session is not None
            tasks: Any = session.workers if name[0] == "worker" else session.routers
            self._tasks[name] = digest_of(tasks[name[1]])
        return self._tasks[name]

    def _of_store(self, worker: int) -> bytes:
        if worker not in self._stores:
            session = self._world.session
            assert session is not None
            env = session.workers[worker].worker.environment
            path = store_path(self._world.spec.state_dir, worker)
            if env is not None:
                with env.reading(buffers=False) as txn:
                    items = list(txn.cursor().iternext())
                items.append((repr(env.ended_epoch).encode(), repr((env.state, env.report)).encode()))
            elif path.exists():
                with Store.open(path, create=False) as store, store.reading(buffers=False) as txn:
                    items = list(txn.cursor().iternext())
            else:
                items = []
            self._stores[worker] = digest_of(items)
        return self._stores[worker]
