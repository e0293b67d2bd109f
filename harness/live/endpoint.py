"""Answers Prometheus while runs go on: what is known of them, under names with units."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from harness.live.state import KnownRun, LiveState
from impls.errors import UsageError

__all__ = ["families", "serving"]

_HOST = "127.0.0.1"
_LAST_S = 60.0  # Prometheus asks once a minute unless told otherwise
_RUN = ("run", "mechanism")
_GAUGES = (
    ("rescale_records_per_second", "Records applied per second, over the last second.", "rate", 1.0),
    ("rescale_lag_records", "Records whose scheduled time has come and that are not applied yet.", "lag", 1.0),
    ("rescale_epoch_number", "Number of the last epoch; in real time of the last tick.", "epoch", 1.0),
    ("rescale_epoch_seconds", "Time that the last epoch took; in real time the last tick.", "epoch_ms", 1e-3),
    ("rescale_turns_per_second", "Turns of all workers per second, in real time.", "turns_per_s", 1.0),
    ("rescale_planned_bins", "Bins that the commands so far asked to move.", "planned_bins", 1.0),
    (
        "rescale_planned_bytes",
        "Bytes of state in the bins that the commands so far asked to move.",
        "planned_bytes",
        1.0,
    ),
    ("rescale_misplaced_bins", "Bins that are not yet where the last command wants them.", "misplaced", 1.0),
)
_COUNTERS = (
    ("rescale_records", "Records applied.", "records"),
    ("rescale_moved_bins", "Bins moved by all migrations.", "moved_bins"),
    ("rescale_moved_bytes", "Bytes of state pulled by all migrations.", "moved_bytes"),
)
_QUANTILES = {"p50": "0.5", "p99": "0.99", "max": "1"}


def families(now: KnownRun | None, ended: tuple[KnownRun, ...]) -> list[Metric]:
    """Returns the metrics of the run under way and the verdicts of those that have ended; unknown numbers are left out.

    Times are in seconds, sizes in bytes; each sample is labelled with the run's folder and its mechanism.
    """
    return [*(_of_run(now) if now is not None else ()), *_verdicts(ended)]


def _of_run(now: KnownRun) -> Iterator[Metric]:
    labels, line = (now.run.folder, now.run.title), now.line
    for name, text, key, scale in _GAUGES:
        yield _gauge(name, text, {key: line.get(key)}, labels=labels, scale=scale)
    for name, text, key in _COUNTERS:
        family = CounterMetricFamily(name, text, labels=_RUN)
        if line.get(key) is not None:
            family.add_metric(labels, line[key])
        yield family
    latency = line.get("latency_ms") or {}
    yield _gauge(
        "rescale_latency_seconds",
        "Latency from the scheduled time, of the records finished in the last second; quantile 1 is the highest.",
        {quantile: latency.get(name) for name, quantile in _QUANTILES.items()},
        labels=labels,
        by="quantile",
        scale=1e-3,
    )
    yield _gauge(
        "rescale_epoch_phase_seconds",
        "Time of each phase of the last epoch; of phases inside the job, that of the slowest worker.",
        line.get("phases_ms") or {},
        labels=labels,
        by="phase",
        scale=1e-3,
    )
    phase = line.get("phase")
    told = {phase: 1} if phase else {}
    yield _gauge("rescale_run_phase", "1 for what the run does.", told, labels=labels, by="phase")


def _gauge(
    name: str, text: str, values: dict[str, Any], *, labels: tuple[str, str], by: str = "", scale: float = 1.0
) -> GaugeMetricFamily:
    """Returns a gauge with a sample for each value that is known; `by` is the label that values differ in."""
    family = GaugeMetricFamily(name, text, labels=[*_RUN, *([by] if by else [])])
    for key, value in values.items():
        if value is not None:
            family.add_metric([*labels, *([key] if by else [])], value * scale)
    return family


def _verdicts(ended: tuple[KnownRun, ...]) -> Iterator[Metric]:
    """Yields 1 for the verdict of each run that has ended, failed where it left none, and for how its load was sent."""
    for name, text, key in (
        ("rescale_run_verdict", "1 for what the oracle said of a run that has ended.", "verdict"),
        ("rescale_run_load", "1 for how the load of a run that has ended was sent: met or late.", "load"),
        ("rescale_run_machine", "1 for what the machine was during a run that has ended: quiet or busy.", "machine"),
    ):
        family = GaugeMetricFamily(name, text, labels=[*_RUN, key])
        for one in ended:
            family.add_metric([one.run.folder, one.run.title, str(one.entry.get(key, "failed"))], 1)
        yield family


class _LiveCollector(Collector):
    """Reads the state again for every answer, and knows whether any client asks.

    Attributes:
        asked: set by every answer.
    """

    def __init__(self, state: LiveState):
        self._state, self.asked = state, threading.Event()

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics of this moment."""
        yield from families(self._state.now, self._state.ended)
        self.asked.set()

    def await_last(self, most_s: float) -> None:
        """Waits for one more answer, if there has been any, so that the last verdict is seen."""
        if self.asked.is_set():
            self.asked.clear()
            sys.stderr.write(f"Waiting up to {most_s:.0f} s for the metrics to be read once more; Ctrl-C ends it.\n")
            self.asked.wait(most_s)


@contextmanager
def serving(port: str, state: LiveState, last_s: float = _LAST_S) -> Iterator[int]:
    """Answers on a port of this machine's loopback address inside the `with`, and yields the port's number.

    Where somebody has asked, the end is put off for one more answer, for at most `last_s` seconds.

    Raises:
        UsageError: it is no number of a port (0 takes any that is free), or the port is in use.
    """
    if not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"--metrics-port takes the number of a port up to 65535, not {port!r}.")
    registry, collector = CollectorRegistry(auto_describe=False), _LiveCollector(state)
    registry.register(collector)
    try:
        server, thread = start_http_server(int(port), addr=_HOST, registry=registry)
    except OSError as error:
        raise UsageError(
            f"The port {port} cannot be listened on ({error.strerror}): choose another --metrics-port."
        ) from error
    sys.stderr.write(f"Metrics are at http://{_HOST}:{server.server_port}/metrics.\n")
    try:
        yield server.server_port
        collector.await_last(last_s)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
