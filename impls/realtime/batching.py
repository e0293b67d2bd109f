"""How long a turn waits for the blobs of other routers that send at the same time. Pure."""

from collections.abc import Collection

__all__ = ["BatchingWindow"]


class BatchingWindow:
    """wait_s() with the blobs' routers says how long the turn is to wait for those of others.

    A load that comes to several partitions of the input at once leaves their routers one behind the other, by less time
    than a turn takes. A turn for the first one alone would let the others wait until it is committed.

    Args:
        wait_s: no turn waits longer, in seconds.
        lately_s: a router that has sent nothing for so long is not waited for.
    """

    def __init__(self, *, wait_s: float = 0.003, lately_s: float = 0.02):
        self._wait_s, self._lately_s = wait_s, lately_s
        self._sent: dict[int, float] = {}
        self._since: float | None = None

    def wait_s(self, routers: Collection[int], now: float) -> float:
        """Returns for how many seconds to wait for blobs of further routers, 0 when the turn is to begin.

        Args:
            routers: those whose blobs are there.
            now: a clock that does not go back, in seconds.
        """
        self._since = now if self._since is None else self._since
        self._sent.update(dict.fromkeys(routers, now))
        awaited = [at for router, at in self._sent.items() if router not in routers and now - at < self._lately_s]
        left = self._since + self._wait_s - now
        if awaited and left > 0:
            return left
        self._since = None
        return 0.0
