"""What is known of runs while they go on: told to Prometheus, and shown by `./inv bench`."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from harness.experiment.description import Experiment, Run
from harness.files import read_json
from harness.results.entry import ENTRY_FILE
from harness.results.place import told_failure
from impls.driver.prometheus import PORT_MAX, MetricsServer, gauge, query_families
from impls.errors import UsageError
from plots.metrics import by_name, plain, remarks


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


class _Collector:
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
    asked = _Collector(state)
    server = MetricsServer(asked.families, int(port))
    sys.stderr.write(f"Metrics are at {server.url}.\n")
    try:
        yield server.port
        asked.await_last(last_s)
    finally:
        server.close()


_BARS = "▁▂▃▄▅▆▇█"
_PLAIN_EVERY_S = 5.0
_PLAIN_WIDTH = 120  # of a log file, so that names stay whole
_MIB = 1 << 20


def _spark_line(values: list[float]) -> str:
    """Returns values as a line of bars, the highest full."""
    top = max(values, default=0) or 1.0
    return "".join(_BARS[min(7, int(value / top * 7.999))] for value in values)


def _workload(experiment: Experiment) -> str:
    if experiment.workload == "nexmark":
        return f"nexmark {experiment.query}, profile {experiment.profile}"
    return f"{experiment.workload} key-count, {experiment.keys:,} keys"


def _moves(entry: dict[str, Any]) -> list[str]:
    """Returns the texts of peak, duration, bins and MiB of a run's migrations; a dash for what is not known."""
    if not entry["migrations"]:
        return ["-", "-", "0", "0.0"]
    peak = max((m["peak_ms"] for m in entry["migrations"] if m["peak_ms"] is not None), default=None)
    seconds, bins, size = (by_name(name).value(entry) for name in ("migration_s", "moved_bins", "moved_bytes"))
    return [plain(peak), plain(seconds, 1), plain(bins), plain(None if size is None else size / _MIB, 1)]


def _pace(line: dict[str, Any]) -> str:
    """Returns how a query goes on: how long its last epoch took, in real time how many commits its workers take."""
    if line.get("turns_per_s") is not None:
        return f"{plain(line['turns_per_s'])} commits/s"
    return f"epoch {plain(line.get('epoch_ms'))} ms"


class LiveView:
    """Shows an experiment's runs on the console; `with LiveView(...)` leaves the final table standing.

    `state` is what is known of the runs; whoever gives one can read there what is shown.
    """

    def __init__(
        self, experiment: Experiment, folder: Path, console: Console | None = None, state: LiveState | None = None
    ):
        self.state = state or LiveState()
        self._console = console or Console(highlight=False, width=None if sys.stdout.isatty() else _PLAIN_WIDTH)
        self._experiment, self._folder = experiment, folder
        self._rows: dict[str, list[str]] = {}
        self._reasons: dict[str, str] = {}
        self._line, self._peaks = "", [0.0] * 0
        self._said, self._phase = 0.0, ""
        self._live = Live(self._render(), console=self._console, refresh_per_second=4, transient=False)

    def __enter__(self) -> "LiveView":
        e = self._experiment
        self._console.print(
            f"{e.name}: {_workload(e)}, {e.rate:,} records/s, {e.workers}"
            f"{f' to {e.workers_goal}' if e.workers_goal != e.workers else ''} workers, {e.bins} bins, seed {e.seed}, "
            f"{len(e.runs())} runs of {e.lead_in_s + e.duration_s:.0f} s"
        )
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._line = ""
        if self._console.is_terminal:
            self._live.update(self._render())
            self._live.stop()
        elif self._rows:
            self._console.print(self._render())

    def begin(self, run: Run) -> None:
        """Shows that a run begins."""
        self.state.begin(run)
        self._peaks, self._phase = [], ""
        self._rows[run.folder] = [run.folder, "running", *["-"] * 7]
        self._show(f"{run.folder}: begins", always=True)

    def skipped(self, run: Run) -> None:
        """Shows that a run was done before."""
        self._rows[run.folder] = [run.folder, "done before", *["-"] * 7]
        self._show(f"{run.folder}: done before", always=True)

    def note(self, text: str) -> None:
        """Shows a sentence."""
        self._show(text, always=True)

    def progress(self, run: Run, line: dict[str, Any]) -> None:
        """Shows the last second of a run."""
        self.state.progress(run, line)
        latency = line.get("latency_ms") or {}
        if "max" in latency:
            self._peaks = [*self._peaks[-39:], latency["max"]]
        text = (
            f"{run.folder}: {line.get('phase', ''):<14} {line.get('records', 0):>9,} records  "
            f"p50 {plain(latency.get('p50'))}  p99 {plain(latency.get('p99'))}  "
            f"max {plain(latency.get('max'))} ms  "
            f"{_pace(line)}  moved {line.get('moved_bins', 0)} bins, "
            f"{line.get('moved_bytes', 0) / _MIB:.1f} MiB  left {line.get('misplaced') or 0}"
        )
        changed, self._phase = line.get("phase") != self._phase, line.get("phase", "")
        self._show(text, always=changed)

    def end(self, run: Run, folder: Path) -> None:
        """Shows a finished run's figures."""
        entry = self.state.end(run, folder)
        if not entry:
            self._rows[run.folder][1] = "failed"
            self._reasons[run.folder] = told_failure(folder)
        else:
            latency = entry["latency_ms"]
            self._rows[run.folder] = [
                run.folder,
                f"{entry['verdict']}{f' ({told})' if (told := ', '.join(remarks(entry))) else ''}",
                *[plain(latency["steady"][name]) for name in ("p50", "p99", "max")],
                *_moves(entry),
            ]
            if entry["verdict"] != "valid":
                self._reasons[run.folder] = " ".join(entry["reasons"])
        why = self._reasons.get(run.folder)
        self._show(f"{run.folder}: {self._rows[run.folder][1]}{f': {why}' if why else ''}", always=True)

    def _show(self, text: str, *, always: bool = False) -> None:
        self._line = text
        if self._console.is_terminal:
            self._live.update(self._render())
        elif always or time.monotonic() - self._said >= _PLAIN_EVERY_S:
            self._said = time.monotonic()
            self._console.print(text, soft_wrap=True)

    def _render(self) -> RenderableType:
        table = Table(box=None, pad_edge=False)
        for title in ("run", "verdict"):
            table.add_column(title)
        for title in ("steady p50", "p99", "max ms", "peak ms", "duration s", "bins", "MiB"):
            table.add_column(title, justify="right")
        for row in self._rows.values():
            table.add_row(*row)
        why = [Text(f"{name}: {text}") for name, text in self._reasons.items()]
        return Group(table, *why, Text(self._line, no_wrap=True), Text(_spark_line(self._peaks)))
