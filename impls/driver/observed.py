"""What every handle offers: waiting for the query's end, its failure, its metrics."""

import contextlib
import logging
import sys
import threading
import traceback
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Self

from impls.closing import close_all
from impls.driver.metrics import Metrics
from impls.driver.prometheus import MetricsServer, query_families
from impls.errors import StateError, UsageError

_LOG = logging.getLogger(__package__)

OnEvent = Callable[[str, dict[str, Any]], None]
"""Takes what happens to a query: the event's kind, and its fields."""
OnLine = Callable[[dict[str, Any], list[dict[str, Any]]], None]
"""Takes an epoch of a query without bins as a line of epochs.jsonl, and the events that end with it."""


class Observed(ABC):
    """A query that tells what it does.

    Args:
        metrics: what the query has done.
        labels: which query it is, on each metric.
    """

    def __init__(self, metrics: Metrics, labels: dict[str, str]):
        self._metrics, self._labels = metrics, labels
        self._servers: list[MetricsServer] | None = []  # None when the query has ended
        self._serving = threading.Lock()

    @abstractmethod
    def status(self) -> dict[str, Any]:
        """Returns what is known of the query."""

    def metrics(self) -> dict[str, Any]:
        """Returns what the query has done since this driver began, see `impls.driver.metrics.Metrics.now`."""
        return self._metrics.now()

    def figures(self) -> dict[str, Any]:
        """Returns `metrics`: its earlier name, which goes with the next version."""
        warnings.warn("query.figures() is now query.metrics().", FutureWarning, stacklevel=2)
        return self.metrics()

    def serve_metrics(self, port: int = 0, address: str = "127.0.0.1") -> int:
        """Answers Prometheus at http://ADDRESS:PORT/metrics until the query ends, and returns the port.

        The metrics are those of `./inv bench --metrics-port`, labelled with `query`, the name that the query has in
        Spark. Whoever reaches the address can read them: name another than the loopback address where that is wanted.

        Args:
            port: the port, 0 for any that is free.
            address: an address of this machine; "0.0.0.0" for all of them.

        Raises:
            UsageError: the port is none or cannot be listened on, or the query has ended.
        """
        with self._serving:
            if self._servers is None:
                raise UsageError("The query has ended: start it again before its metrics are served.")
            server = MetricsServer(lambda: query_families(self._metrics.now(), self._labels), port, address)
            self._servers.append(server)
        _LOG.info("Metrics are at %s.", server.url)
        return server.port

    def end_serving(self) -> None:
        """Ends the endpoints for good; the query's end calls it."""
        with self._serving:
            servers, self._servers = self._servers or [], None
        close_all((server.close for server in servers), "metrics endpoint")

    def answer_watch(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """Answers a request of another process for metrics, None for one about something else."""
        if request["do"] != "watch":
            return None
        return {"query": self._labels["query"], "status": self.status(), "metrics": self.metrics()}


class RunningQuery(ABC):
    """What every query that a supervisor thread runs offers: waiting for its end, and its failure."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._failure: Exception | None = None
        self._supervisor: threading.Thread | None = None

    def _begin(self, supervise: Callable[[], None], name: str) -> None:
        """Starts the supervisor's thread, which says by `_ended` when the query has ended."""
        self._supervisor = threading.Thread(target=supervise, name=name, daemon=True)
        self._supervisor.start()

    def _await_stopped(self, query: str, within_s: float) -> None:
        """Waits for the end of a query that was told to end; raises what it failed with.

        Raises StateError, and says in the log where the query is, when that takes longer.
        """
        supervisor = self._supervisor
        assert supervisor is not None, "a query has begun before it ends"
        if not self._ended.wait(within_s):
            _LOG.error("%s does not end. It is here:\n%s", query, _stack_of(supervisor))
            raise StateError(f"{query} did not end in {within_s:.0f} s.")
        supervisor.join()
        self.await_end(0)

    @abstractmethod
    def stop(self) -> None:
        """Ends the query; raises what it failed with, if it did."""

    def await_end(self, timeout_s: float | None = None) -> bool:
        """Waits until the query has ended and returns whether it has; raises what it failed with."""
        ended = self._ended.wait(timeout_s)
        if ended and self._failure is not None:
            raise self._failure
        return ended

    def ended(self, timeout_s: float) -> bool:
        """Waits until the query has ended for any reason, and returns whether it has ended."""
        return self._ended.wait(timeout_s)

    @property
    def failed(self) -> Exception | None:
        """What the query failed with, None while it runs or when it ended as asked."""
        return self._failure

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with contextlib.nullcontext() if kind is None else contextlib.suppress(Exception):
            self.stop()  # after an error that error is the one to see


def _stack_of(thread: threading.Thread) -> str:
    """Returns where a thread is, as a traceback says it; empty for one that has ended."""
    frame = sys._current_frames().get(thread.ident or 0)
    return "" if frame is None else "".join(traceback.format_stack(frame))
