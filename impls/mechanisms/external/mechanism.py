"""External state (MillWheel, Akidau et al., PVLDB 6(11), 2013): shared state, a move is a change of token."""

from dataclasses import dataclass

from impls.errors import UsageError
from impls.mechanisms.external.shared import CACHE_BYTES, SharedRedis
from impls.protocol.mechanism import Mechanism, refuse_negative
from impls.protocol.moves import movable, pull_plan
from impls.protocol.plan import EpochPlan
from impls.protocol.view import View

__all__ = ["MECHANISMS", "ExternalState"]


@dataclass(frozen=True)
class ExternalState(Mechanism):
    """All misplaced bins change their owner in one epoch; their bytes stay where they are.

    Attributes:
        redis: URL of the Redis server that holds the state, such as redis://host:6379/0; the benchmark starts one
            itself when none is given.
        cache_bytes: most bytes of state that each worker process keeps in memory.
    """

    redis: str = ""
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
