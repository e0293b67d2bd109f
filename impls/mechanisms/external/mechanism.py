"""External state (MillWheel, Akidau et al., PVLDB 6(11), 2013): shared state, a move is a change of token.

The store that all workers share is a Redis server.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from impls.addresses import has_secret, shown
from impls.errors import UsageError
from impls.mechanisms.external.client import check_server, forget
from impls.mechanisms.external.store import RedisStore
from impls.mechanisms.external.transaction import RedisTransaction, Token
from impls.protocol.mechanism import Mechanism, refuse_negative
from impls.protocol.moves import movable, pull_plan
from impls.protocol.plan import EpochPlan, Pull, WrittenPlan
from impls.protocol.report import Report
from impls.protocol.view import View

CACHE_BYTES = 64 << 20


@dataclass(frozen=True)
class SharedRedis:
    """The store that all workers of a query share: a Redis server, and a cache in each worker's process.

    See `impls.protocol.mechanism.Shared` for what its methods promise.

    Attributes:
        url: the server's address.
        cache_bytes: most bytes that a process keeps.
    """

    url: str = field(repr=False)
    cache_bytes: int = CACHE_BYTES

    @property
    def address(self) -> str:
        """The server's address, without its password."""
        return f"the Redis server {shown(self.url)}"

    @property
    def has_secret(self) -> bool:
        """Whether the server's address holds a password."""
        return has_secret(self.url)

    def check(self) -> None:
        """Raises UsageError when the server does not answer, or may evict keys."""
        check_server(self.url)

    def forget(self, query: str) -> None:
        """Deletes all that a query has stored."""
        forget(self.url, query)

    def open(self, query: str, worker: int, report: Report) -> RedisStore:
        """Opens a worker's part of the store at its last commit."""
        return RedisStore(self.url, query, worker, cache_bytes=self.cache_bytes, report=report)

    def begin_anew(self, store: RedisStore, written: WrittenPlan, worker: int, bins: Sequence[int]) -> RedisTransaction:
        """Begins a transaction that deletes the worker's own records and takes bins that no worker has created."""
        txn = store.begin()
        for name in txn.own_names():
            txn.delete(name)
        txn.create(bins, Token(written.generation, 0, worker))
        return txn

    def stage(self, txn: RedisTransaction) -> None:
        """Sends what was written to new bins ahead of the commit."""
        txn.stage()

    def pull(self, written: WrittenPlan, pulls: Iterable[Pull], txn: RedisTransaction) -> dict[int, int]:
        """Makes the worker the owner of bins and returns {bin: bytes of its state}, in the order given."""
        wanted = list(pulls)
        if not wanted:
            return {}
        token = Token(written.generation, written.epoch, wanted[0].target)
        return txn.claim({pull.bin: pull.source for pull in wanted}, token)


@dataclass(frozen=True)
class ExternalState(Mechanism):
    """All misplaced bins change their owner in one epoch; their bytes stay where they are.

    Attributes:
        redis: URL of the Redis server that holds the state, such as redis://host:6379/0; the benchmark starts one
            itself when none is given. Its password is in the URL, or in the environment of every host, in
            RESCALE_REDIS_PASSWORD, so that it need not travel.
        cache_bytes: most bytes of state that each worker process keeps in memory.
    """

    redis: str = field(default="", repr=False)
    cache_bytes: int = CACHE_BYTES

    def __post_init__(self) -> None:
        refuse_negative("cache_bytes", self.cache_bytes)

    def plan(self, view: View) -> EpochPlan:
        """Returns a plan that moves everything; see `Mechanism.plan`."""
        return pull_plan(view, movable(view).bins)

    @property
    def shared(self) -> SharedRedis:
        """Where the workers' state lives."""
        if not self.redis:
            raise UsageError("external-state needs a Redis server: give its address with redis=redis://HOST:PORT.")
        return SharedRedis(self.redis, self.cache_bytes)


MECHANISMS = {"external-state": ExternalState}
