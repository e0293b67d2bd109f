"""The load of a comparison that names none: what this machine carries, as a probe of a few seconds says."""

import math
import os
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.experiment.description import Experiment
from harness.experiment.parameters import MICRO_BATCH
from harness.files import read_json, write_json
from harness.lab.child import Child
from harness.measure.cpu import BUSY, CpuReader, cores, quota
from harness.measure.speed import Stretch
from harness.results.machine import hardware
from harness.results.place import find_folder
from harness.run.runs import busy_runs
from impls.errors import UsageError

_FILE = "experiment.json"
PROBE_FILE = "probe.json"  # in the folder of results
RATES = (10_000, 8_000, 6_000, 5_000, 4_000, 3_000, 2_000, 1_500, 1_000, 500)
_TRIGGERS = ("0 seconds", "1 second")
_EPOCH_PROCESSORS = 1.5  # that Spark's own epochs use when one follows the other, at any rate
_IDLE = 1 / 3
# What a second of the default mechanism in real time costs a machine, in records that the probe counts: without any
# record, and for each. See docs/decisions/measuring.md for where they come from.
_FIXED, _EACH = 175_000.0, 6.0
_QUIET_S, _PROBE_S = 1.0, 2.0
_DEADLINE_S = 120.0  # for counters to come up, on a machine that is very slow, and to end
_MACHINE = ("architecture", "cpu", "cores")


@dataclass(frozen=True)
class Probe:
    """What a machine can do at a moment.

    Attributes:
        speed: records that one processor counts in a second of its time, see `harness.measure.speed`.
        processors: how many it has for this program, a quota counted as the part that it is.
        busy: share of their time that others use.
    """

    speed: float
    processors: float
    busy: float

    @property
    def rate(self) -> int:
        """The highest of `RATES` that leaves a third of the processors idle, the lowest where none does."""
        return next(filter(self._carries, RATES), RATES[-1])

    @property
    def trigger(self) -> str:
        """How far apart epochs begin: on about one processor those that follow one another leave nothing idle."""
        return _TRIGGERS[self.processors < _EPOCH_PROCESSORS]

    @property
    def fits(self) -> bool:
        """Whether the rate leaves a third of the processors idle."""
        return self._carries(self.rate)

    def _carries(self, rate: int) -> bool:
        return _FIXED + _EACH * rate <= self.speed * self.processors * (1 - _IDLE - self.busy)


@dataclass(frozen=True)
class Load:
    """A rate in records/s, the interval of epochs, and a sentence that says where they come from."""

    rate: int
    trigger: str
    sentence: str

    def of(self, experiment: Experiment) -> Experiment:
        """Returns an experiment with this load; without epochs it has no interval of them."""
        trigger = self.trigger if MICRO_BATCH in experiment.modes else experiment.trigger
        return replace(experiment, rate=self.rate, trigger=trigger)


def loaded(experiment: Experiment, output: Path, *, force: bool, resume: bool) -> Experiment:
    """Returns an experiment with the load of `load_for`, and prints where that comes from."""
    load = load_for(experiment, output, force=force, resume=resume)
    if load.sentence:
        sys.stdout.write(f"{load.sentence}\n")
        sys.stdout.flush()
    return load.of(experiment)


def load_for(experiment: Experiment, output: Path, *, force: bool = False, resume: bool = False) -> Load:
    """Returns the load of an experiment that names none.

    The first probe of a machine is kept in the folder of results and holds for later comparisons there, so that these
    are of one load and an earlier result is there again; to force a new result is to probe anew. An unfinished result
    to resume has its own load, whatever has been probed since.

    Args:
        experiment: all its other parameters.
        output: folder of results.
        force: probe anew.
        resume: take the load of an unfinished result.

    Raises:
        UsageError: the probe did not end, or its file cannot be written.
    """
    stored = None if force and not resume else stored_probe(output)
    if resume and (begun := _resumed(experiment, output)) is not None:
        return Load(*begun, f"The result to resume has {begun[0]:,} records/s.")
    if stored is not None:
        return _load(stored, "as probed before; --force probes anew, --rate overrides")
    if resume:
        return Load(experiment.rate, experiment.trigger, "")
    made = probe()
    if made.busy <= BUSY:  # else it says little of the machine
        _store(output, made)
    return _load(made, "--rate overrides")


def _load(found: Probe, how: str) -> Load:
    short = "" if found.fits else f", which leaves less than {_IDLE:.0%} of it idle"
    apart = "" if found.trigger == _TRIGGERS[0] else f", epochs {found.trigger} apart"
    sentence = (
        f"This machine ({found.processors:.1f} processors, {found.busy:.0%} busy with other work): "
        f"{found.rate:,} records/s{apart}{short} ({how})."
    )
    return Load(found.rate, found.trigger, sentence)


def _resumed(experiment: Experiment, output: Path) -> tuple[int, str] | None:
    """Returns rate and trigger of the newest result of the experiment to go on with, at any load.

    That is an unfinished one, else one of which a run is to be made anew, as the machine was busy.
    """

    def at(data: dict[str, Any]) -> Experiment | None:
        rate, trigger = data.get("rate"), data.get("trigger")
        if not (isinstance(rate, int) and isinstance(trigger, str)):
            return None
        found = Load(rate, trigger, "").of(experiment)
        return found if data["digest"] == found.digest() else None

    def busy(data: dict[str, Any], folder: Path) -> bool:
        return (found := at(data)) is not None and bool(busy_runs(found.runs(), folder / "runs"))

    folder = find_folder(output, _FILE, lambda data: at(data) is not None, finished=False)
    if folder is None:
        done = sorted(output.glob(f"*/{_FILE}"), reverse=True)
        folder = next((f.parent for f in done if (f.parent / "done").exists() and busy(read_json(f), f.parent)), None)
    found = None if folder is None else read_json(folder / _FILE)
    return None if found is None else (found["rate"], found["trigger"])


def stored_probe(output: Path) -> Probe | None:
    """Returns the probe in a folder of results, None where there is none of this machine."""
    try:
        data = read_json(output / PROBE_FILE)
        found = Probe(**{name: float(data[name]) for name in ("speed", "processors", "busy")})
    except (ValueError, KeyError, TypeError):  # none, or broken: it is made anew
        return None
    return found if data.get("machine") == _machine() else None


def _store(output: Path, made: Probe) -> None:
    try:
        write_json(output / PROBE_FILE, {**asdict(made), "at": f"{datetime.now(UTC):%F %T}", "machine": _machine()})
    except OSError as error:
        raise UsageError(f"The file {output / PROBE_FILE} cannot be written: {error.strerror}.") from error


def _machine() -> dict[str, Any]:
    return {**{name: hardware()[name] for name in _MACHINE}, "quota": quota()}


def probe() -> Probe:
    """Measures what this machine can do, in about 5 s; raises UsageError where that does not end."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rescale-probe-")))
        many = min(len(cores()), math.ceil(quota() or len(cores())))
        counters = [stack.enter_context(_counter(folder / str(number))) for number in range(many)]
        deadline = threading.Timer(_DEADLINE_S, lambda: _kill(counters))
        deadline.start()
        stack.callback(deadline.cancel)
        for counter in counters:
            _line(counter)
        quiet = _spent(_QUIET_S)
        for counter in counters:
            counter.go()
        full = _spent(_PROBE_S)
        stretches = [Stretch(**_line(counter)) for counter in counters]
    return probe_of(stretches, quiet, full)


def _kill(counters: Sequence[Child]) -> None:
    for counter in counters:
        counter.kill()


def _counter(folder: Path) -> Child:
    folder.mkdir()
    return Child("harness.measure.speed", folder, str(_PROBE_S))


def _line(counter: Child) -> dict[str, Any]:
    """Returns the next line of a counter; raises UsageError where it ends without one, as it does behind a deadline."""
    line = next(counter.lines(), {})
    if "records" not in line:
        why = str(line.get("error") or line.get("crash") or "it does not end in time").rstrip(".")
        raise UsageError(f"What this machine carries cannot be measured ({why}): give --rate.")
    return line


def probe_of(stretches: Sequence[Stretch], quiet: Mapping[str, int] | None, full: Mapping[str, int] | None) -> Probe:
    """Returns the probe of what one counter per processor did, at once, beside what the machine did.

    Args:
        stretches: of the counters, each `_PROBE_S` long.
        quiet: differences of `CpuReader`'s sums before, while this program did nothing; None where nothing is known.
        full: those of the same time.
    """
    cpu_s = sum(stretch.cpu_s for stretch in stretches)
    others_s = 0.0 if full is None else _others(full) / 1e6
    processors = min(float(len(stretches)), (cpu_s + others_s) / _PROBE_S)
    whole = 0 if quiet is None else sum(quiet[name] for name in ("used", "idle", "steal"))
    busy = (_others(quiet) + quiet["steal"]) / whole if quiet is not None and whole > 0 else 0.0
    return Probe(sum(stretch.records for stretch in stretches) / cpu_s, processors, min(busy, 1.0))


def _others(spent: Mapping[str, int]) -> int:
    return max(0, spent["used"] - spent["own"])


def _spent(seconds: float) -> dict[str, int] | None:
    """Returns what the machine's processors do in some seconds, microseconds; None where the system does not tell."""
    reader = CpuReader(os.getpid())
    before = reader.read()
    time.sleep(seconds)
    after = reader.read()
    return None if before is None or after is None else {name: after[name] - before[name] for name in before}
