"""What is known of runs while they go on, and the endpoint that tells it to Prometheus."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric

from harness.experiment.description import Run
from harness.files import read_json
from harness.results.entry import ENTRY_FILE
from impls.driver.prometheus import PORT_MAX, MetricsServer, gauge, query_families
from impls.errors import UsageError


@dataclass(frozen=True, slots=True)
class KnownRun:
    """A run: the line of its last second while it goes on, see `harness.run.progress.line_of`; then its entry.

    The entry is that of result.json; of a run that failed it is empty.
    """

    run: Run
    line: dict[str, Any] = field(default_factory=dict)
    entry: dict[str, Any] = field(default_factory=dict)


class LiveState:
    """The run under way and those that have ended; other threads may read it at any time, as values are replaced whole.

    Attributes:
        now: the run under way; None between two runs.
        ended: the runs that have ended, in that order.
    """

    def __init__(self) -> None:
        self.now: KnownRun | None = None
        self.ended: tuple[KnownRun, ...] = ()

    def begin(self, run: Run) -> None:
        """A run begins."""
        self.now = KnownRun(run)

    def progress(self, run: Run, line: dict[str, Any]) -> None:
        """A second of a run has passed."""
        self.now = KnownRun(run, line)

    def end(self, run: Run, folder: Path) -> dict[str, Any]:
        """A run has ended; returns its entry, an empty one if it failed.

        Raises:
            ValueError: its entry is broken.
        """
        entry = read_json(folder / ENTRY_FILE)
        self.now, self.ended = None, (*self.ended, KnownRun(run, entry=entry))
        return entry


_LAST_S = 60.0  # Prometheus asks once a minute unless told otherwise
_RUN = ("run", "mechanism")


def families(now: KnownRun | None, ended: tuple[KnownRun, ...]) -> list[Metric]:
    """Returns the metrics of the run under way and the verdicts of those that have ended; unknown numbers are left out.

    Each sample is labelled with the run's folder and its mechanism.
    """
    return [*(_of_run(now) if now is not None else ()), *_verdicts(ended)]


def _of_run(now: KnownRun) -> Iterator[Metric]:
    labels = dict(zip(_RUN, (now.run.folder, now.run.title), strict=True))
    yield from query_families(now.line, labels)
    phase = now.line.get("phase")
    told = {phase: 1} if phase else {}
    yield gauge("rescale_run_phase", "1 for what the run does.", told, labels, by="phase")


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


class _Asked:
    """Reads the state again for every answer, and knows whether any client asks."""

    def __init__(self, state: LiveState):
        self._state, self._asked = state, threading.Event()

    def families(self) -> Iterator[Metric]:
        """Yields the metrics of this moment."""
        yield from families(self._state.now, self._state.ended)
        self._asked.set()

    def await_last(self, most_s: float) -> None:
        """Waits for one more answer, if there has been any, so that the last verdict is seen."""
        if self._asked.is_set():
            self._asked.clear()
            sys.stderr.write(f"Waiting up to {most_s:.0f} s for the metrics to be read once more; Ctrl-C ends it.\n")
            self._asked.wait(most_s)


@contextmanager
def serving(port: str, state: LiveState, last_s: float = _LAST_S) -> Iterator[int]:
    """Answers on a port of this machine's loopback address inside the `with`, and yields the port's number.

    Where somebody has asked, the end is put off for one more answer, for at most `last_s` seconds.

    Raises:
        UsageError: it is no number of a port (0 takes any that is free), or the port is in use.
    """
    if not port.isdecimal() or int(port) > PORT_MAX:
        raise UsageError(f"--metrics-port takes the number of a port up to {PORT_MAX}, not {port!r}.")
    asked = _Asked(state)
    server = MetricsServer(asked.families, int(port))
    sys.stderr.write(f"Metrics are at {server.url}.\n")
    try:
        yield server.port
        asked.await_last(last_s)
    finally:
        server.close()
