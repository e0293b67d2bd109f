"""What a handle offers to whoever watches its query: figures, and an endpoint for Prometheus."""

import logging
import threading
from abc import ABC, abstractmethod
from typing import Any

from impls.driver.figures import Figures
from impls.driver.metrics import MetricsServer, query_families
from impls.errors import UsageError

__all__ = ["Observed"]

_LOG = logging.getLogger(__package__)


class Observed(ABC):
    """A query that tells what it does.

    Args:
        figures: what the query has done.
        labels: which query it is, on each metric.
    """

    def __init__(self, figures: Figures, labels: dict[str, str]):
        self._figures, self._labels = figures, labels
        self._servers: list[MetricsServer] | None = []  # None when the query has ended
        self._serving = threading.Lock()

    @abstractmethod
    def status(self) -> dict[str, Any]:
        """Returns what is known of the query."""

    def figures(self) -> dict[str, Any]:
        """Returns what the query has done since this driver began, see `impls.driver.figures.Figures.now`."""
        return self._figures.now()

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
            server = MetricsServer(lambda: query_families(self._figures.now(), self._labels), port, address)
            self._servers.append(server)
        _LOG.info("Metrics are at %s.", server.url)
        return server.port

    def end_serving(self) -> None:
        """Ends the endpoints for good; the query's end calls it."""
        with self._serving:
            servers, self._servers = self._servers or [], None
        for server in servers:
            server.close()

    def answer_watch(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """Answers a request of another process for figures, None for one about something else."""
        if request["do"] != "watch":
            return None
        return {"query": self._labels["query"], "status": self.status(), "figures": self.figures()}
