"""Metrics of queries for Prometheus, under names with units; times are in seconds, sizes in bytes."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from impls.closing import close_all
from impls.errors import UsageError

PORT_MAX = 65_535
_GAUGES = (
    ("rescale_records_per_second", "Records applied per second, over the last second or seconds.", "rate", 1.0),
    ("rescale_lag_records", "Records whose scheduled time has come and that are not applied yet.", "lag", 1.0),
    ("rescale_epoch_number", "Number of the last epoch.", "epoch", 1.0),
    ("rescale_epoch_seconds", "Time that the last epoch took.", "epoch_ms", 1e-3),
    ("rescale_turns_per_second", "Commits of all workers per second, in real time.", "turns_per_s", 1.0),
    ("rescale_planned_bins", "Bins that the commands so far asked to move.", "planned_bins", 1.0),
    ("rescale_planned_bytes", "Bytes of state in the bins that commands asked to move.", "planned_bytes", 1.0),
    ("rescale_misplaced_bins", "Bins that are not yet where the last command wants them.", "misplaced", 1.0),
    ("rescale_migrating", "1 while a migration is under way, 0 otherwise.", "migrating", 1.0),
    ("rescale_queued_records", "Records that wait at their new owner for their bin's state.", "queued", 1.0),
    ("rescale_queue_bytes", "Stored size of the records that wait.", "queue_bytes", 1.0),
    ("rescale_state_bytes", "Size of the state of all bins.", "state_bytes", 1.0),
    ("rescale_durable_bytes", "Size of changelog and snapshots.", "durable_bytes", 1.0),
    ("rescale_watermark", "Watermark of event time, in the unit of its column.", "watermark", 1.0),
)
_COUNTERS = (
    ("rescale_records", "Records applied.", "records"),
    ("rescale_results", "Results sent.", "results"),
    ("rescale_migrations", "Migrations that have ended.", "migrations"),
    ("rescale_moved_bins", "Bins moved by all migrations.", "moved_bins"),
    ("rescale_moved_bytes", "Bytes of state pulled by all migrations.", "moved_bytes"),
    ("rescale_restored_bins", "Bins that came from the checkpoint instead of their old owner.", "restored_bins"),
    ("rescale_rebuilt_workers", "Workers rebuilt from the checkpoint.", "rebuilt"),
    ("rescale_task_retries", "Attempts of workers' tasks behind the first.", "retries"),
    ("rescale_refused_records", "Records that could not be applied and were set aside.", "refused"),
    ("rescale_late_records", "Records below the watermark.", "late"),
    ("rescale_fired_timers", "Timers that have fired.", "fired"),
)
_OF_WORKER = (
    ("rescale_worker_records_per_second", "Records that a worker applied per second.", "rate", 1.0),
    ("rescale_worker_busy_seconds", "Time that a worker's step took in the last epoch.", "busy_ms", 1e-3),
    ("rescale_worker_environment_bytes", "Size of a worker's environment on disk.", "lmdb_bytes", 1.0),
)
_QUANTILES = {"p50": "0.5", "p99": "0.99", "max": "1"}
Labels = Mapping[str, str]


def query_families(line: Mapping[str, Any], labels: Labels) -> Iterator[Metric]:
    """Yields the metrics of a query; a number that is None is left out, a metric whose number the query never has too.

    Args:
        line: numbers by name, see `impls.driver.metrics.Metrics.now`.
        labels: which query it is, on each sample.
    """
    for name, text, key, scale in _GAUGES:
        if key in line:
            yield gauge(name, text, {key: line[key]}, labels, scale=scale)
    for name, text, key in _COUNTERS:
        if key in line:
            family = CounterMetricFamily(name, text, labels=list(labels))
            if line[key] is not None:
                family.add_metric(list(labels.values()), line[key])
            yield family
    latency = line.get("latency_ms") or {}
    yield gauge(
        "rescale_latency_seconds",
        "Latency from the scheduled time, of the records last finished; quantile 1 is the highest.",
        {quantile: latency.get(name) for name, quantile in _QUANTILES.items()},
        labels,
        by="quantile",
        scale=1e-3,
    )
    yield gauge(
        "rescale_epoch_phase_seconds",
        "Time of each phase of the last epoch; of phases inside the job, that of the slowest worker.",
        line.get("phases_ms") or {},
        labels,
        by="phase",
        scale=1e-3,
    )
    for name, text, key, scale in _OF_WORKER:
        if "workers" in line:
            values = {str(row["worker"]): row[key] for row in line["workers"]}
            yield gauge(name, text, values, labels, by="worker", scale=scale)


def gauge(
    name: str, text: str, values: Mapping[str, Any], labels: Labels, *, by: str = "", scale: float = 1.0
) -> GaugeMetricFamily:
    """Returns a gauge with a sample for each value that is known; `by` is the label that values differ in."""
    family = GaugeMetricFamily(name, text, labels=[*labels, *([by] if by else [])])
    for key, value in values.items():
        if value is not None:
            family.add_metric([*labels.values(), *([key] if by else [])], value * scale)
    return family


class _Collector(Collector):
    def __init__(self, families: Callable[[], Iterable[Metric]]):
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """Returns the metrics of this moment."""
        return self._families()


class MetricsServer:
    """Answers Prometheus over HTTP until closed, each time with what `families()` returns then.

    Attributes:
        port: the port it listens on.
        url: where the metrics are.

    Args:
        families: called in a thread of the server.
        port: the port, 0 for any that is free.
        address: that it listens on.

    Raises UsageError when it is no number of a port, or cannot be listened on.
    """

    def __init__(self, families: Callable[[], Iterable[Metric]], port: int, address: str = "127.0.0.1"):
        if not 0 <= port <= PORT_MAX:
            raise UsageError(f"A port for metrics is a number up to {PORT_MAX}, not {port}.")
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Collector(families))
        try:
            self._server, self._thread = start_http_server(port, addr=address, registry=registry)
        except OSError as error:
            raise UsageError(
                f"The port {port} cannot be listened on ({error.strerror}): choose another port for metrics."
            ) from error
        self.port: int = self._server.server_port
        self.url = f"http://{address}:{self.port}/metrics"

    def close(self) -> None:
        """Ends it."""
        close_all((self._server.shutdown, self._thread.join, self._server.server_close), "metrics endpoint")
