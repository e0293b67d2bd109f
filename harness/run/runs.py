"""Runs a list of runs one after another, each in a separate process: for an experiment, a sweep, or variants.

What an earlier process has left of a run goes before it begins anew; a run measured on a busy machine is made again.
"""

import contextlib
import shutil
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from generators.nexmark.profile import make_profile
from harness.experiment.description import Experiment, Run
from harness.files import read_json
from harness.lab.broker import ExternalBroker
from harness.lab.child import Child
from harness.lab.hosts.isolated import can_isolate
from harness.lab.processes import disturbed
from harness.results.entry import ENTRY_FILE
from harness.results.place import FAILURE_FILE, told_failure, write_failure
from harness.setup.java import use_java
from harness.setup.pack import archive_of
from impls.closing import Closing
from impls.errors import UsageError
from impls.spark.master import check_master

AGAIN = 2  # times: a machine that is busy for three runs in a row will not be quiet soon
_KEPT = {"run.json", "run.log", "cell.json"}
_RECORD_BYTES = 400  # an input record, its result, and its part of logs, cells and LMDB's copied pages
_FIXED_BYTES = 256 << 20  # broker, logs, figures
_KEY_BYTES = {"dense": 24, "hash": 120}  # three copies of a count, or of an entry: state, a moved copy, free pages
_AUCTION_BYTES = 1_500  # an event in the topic, with a person or two; three copies of its entry
_EVENT_BYTES = 700
_COPIES = 3  # of a value: state or changelog, a moved copy, free pages


def check_machine(experiment: Experiment, output: Path) -> None:
    """Raises UsageError when Java, disk space, a folder, the broker or the master named is not there."""
    use_java()
    for folder in (output, *([Path(experiment.state_dir)] if experiment.state_dir else [])):
        _check_space(folder, experiment)
    if experiment.bootstrap is not None:
        ExternalBroker(experiment.bootstrap).start()
    check_master(experiment.master)
    archive_of(experiment.archive)
    if experiment.netem and not can_isolate():
        raise UsageError("A network that is slowed needs hosts in namespaces: run as root, or leave out --netem.")


def needed_bytes(experiment: Experiment) -> int:
    """Returns an upper estimate of the bytes that one run of an experiment has on disk at a time."""
    if experiment.workload == "nexmark":
        open_auctions = make_profile(experiment.profile, experiment.rate).in_flight
        return open_auctions * _AUCTION_BYTES + experiment.records * _EVENT_BYTES + _FIXED_BYTES
    state = experiment.keys * (_KEY_BYTES[experiment.workload] + _COPIES * experiment.value_bytes)
    return state + experiment.records * (_RECORD_BYTES + _COPIES * experiment.value_bytes) + _FIXED_BYTES


def _check_space(folder: Path, experiment: Experiment) -> None:
    """Makes the folder; raises UsageError when that fails or when its disk has too little room."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"The folder {folder} cannot be made: {error.strerror}.") from error
    free, needed = shutil.disk_usage(folder).free, needed_bytes(experiment)
    if free < needed:
        raise UsageError(
            f"A run needs about {needed / 2**30:.1f} GiB in {folder}, where {free / 2**30:.1f} GiB are free: "
            "make room, take fewer keys, or name another folder."
        )


@dataclass(frozen=True)
class NamedRun(Run):
    """A run whose folder has a name of its own, as it is one of several variants of an experiment."""

    place: str = ""

    @property
    def folder(self) -> str:
        """Name of the run's folder."""
        return self.place


class Watcher(Protocol):
    """Receives what happens; `harness.live.view.LiveView` is one."""

    def begin(self, run: Run) -> None:
        """A run begins."""

    def skipped(self, run: Run) -> None:
        """A run was done before."""

    def note(self, text: str) -> None:
        """Something is to be said."""

    def progress(self, run: Run, line: dict[str, Any]) -> None:
        """A second of a run has passed."""

    def end(self, run: Run, folder: Path) -> None:
        """A run has ended."""


def _started(folder: Path) -> Child:
    """Returns the process of a run, which brings up broker and Spark at once and runs the run after go()."""
    return Child("harness.run.process", folder)


class Relay(Closing):
    """Starts broker and Spark of the next run while the oracle checks the one before; close() ends what was not taken.

    Attributes:
        behind: folder of the run that begins behind the runs of an experiment, None if there is none.
    """

    def __init__(self) -> None:
        self.behind: Path | None = None
        self._ready: Child | None = None

    def prepare(self, folder: Path | None) -> None:
        """Starts what a run's folder describes, unless that is done, or something waits already."""
        if self._ready is None and folder is not None and not (folder / "done").exists():
            self._ready = _started(folder)

    def go(self) -> None:
        """Lets what waits make its state, while what is behind it is drawn: neither is measured."""
        if self._ready is not None:
            self._ready.go()

    def take(self, folder: Path) -> Child:
        """Returns the process of a folder, started now unless it waits; another one that waits ends."""
        ready, self._ready = self._ready, None
        if ready is not None and ready.folder != folder:
            ready.close()
            ready = None
        return ready or _started(folder)

    def close(self) -> None:
        """Ends what waits."""
        if self._ready is not None:
            self._ready.close()
            self._ready = None


def run_all(runs: Sequence[Run], folder: Path, view: Watcher, relay: Relay | None = None) -> None:
    """Runs what is not done yet.

    Args:
        runs: in this order; each has `folder / run.folder` with its run.json.
        folder: parent of the runs' folders.
        view: receives what happens.
        relay: of several experiments, to be closed behind the last one.

    Raises:
        UsageError: a run was refused for bad input.
    """
    left = deque(runs)
    with contextlib.nullcontext(relay) if relay is not None else Relay() as hand:

        def prepare_next() -> None:
            hand.prepare(folder / left[0].folder if left else hand.behind)

        while left:
            run = left.popleft()
            if (folder / run.folder / "done").exists():
                view.skipped(run)
            elif not _run_one(run, hand.take(folder / run.folder), view, prepare_next):
                view.note(f"{run.folder}: its fault has ended it; it is resumed")
                _run_one(run, hand.take(folder / run.folder), view, prepare_next)


def _run_one(run: Run, process: Child, view: Watcher, prepare_next: Callable[[], None]) -> bool:
    """Runs one run; returns False when its fault has ended its process, which can then be resumed."""
    view.begin(run)
    (process.folder / FAILURE_FILE).unlink(missing_ok=True)
    before = disturbed(process.folder)
    try:
        process.go()
        for line in process.lines():
            view.progress(run, line)
            if line.get("phase") == "checking":
                prepare_next()
        ended = process.wait()
    finally:
        process.close()
    if ended.code and ended.code != 2 and disturbed(process.folder) and not before:
        return False
    if ended.code:
        write_failure(process.folder, str(ended))
    view.end(run, process.folder)
    if ended.code == 2:
        raise UsageError(told_failure(process.folder))
    return True


def begin_anew(folder: Path) -> None:
    """Deletes what an earlier process of a run has left, its parameters and its log excepted."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name not in _KEPT:
            path.unlink()


def busy_runs(runs: Sequence[Run], folder: Path) -> list[Run]:
    """Returns the runs that are done and during which the machine was busy."""
    return [run for run in runs if read_json(folder / run.folder / ENTRY_FILE).get("machine") == "busy"]


def until_quiet(runs: Sequence[Run], folder: Path, view: Watcher, again: int, relay: Relay | None = None) -> None:
    """Runs what is not done, and up to `again` times those runs anew during which the machine was busy.

    Raises:
        UsageError: a run was refused for bad input.
    """
    run_all(runs, folder, view, relay)
    for number in range(1, again + 1):
        busy = busy_runs(runs, folder)
        if not busy:
            return
        names = ", ".join(run.folder for run in busy)
        view.note(f"The machine was busy during {names}: run anew, {number} of {again} times at most.")
        for run in busy:
            begin_anew(folder / run.folder)
        run_all(busy, folder, view, relay)
