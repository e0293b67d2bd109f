"""An experiment: what follows from its parameters, and its runs."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from generators.rates import Schedule, csv_path, make_schedule
from harness.experiment.parameters import MICRO_BATCH, REAL_TIME, Parameters
from harness.options import parse_list
from impls import catalog
from impls.autoscale.loop import AutoscaleSettings
from impls.errors import UsageError

_AUTOSCALE = "autoscale"
_NAMES = {"min": "least", "max": "most"}  # as `StreamHandle.autoscale` calls them
_KINDS: dict[str, type[Any]] = {"least": int, "most": int, "interval_s": float, "cooldown_s": float, "warmup": int}


def parse_autoscale(migration: str) -> AutoscaleSettings | None:
    """Returns what a migration asks for, None for one that is not decided by a policy.

    What is no bound and no time is an option of the policy.

    Raises:
        UsageError: no policy or no `max` is named, or one of the values cannot be used.
    """
    kind, _, text = migration.partition(":")
    if kind != _AUTOSCALE:
        return None
    pairs = [part.partition("=")[::2] for part in parse_list(text)]
    values = {_NAMES.get(name, name): value for name, value in pairs}
    if "policy" not in values or "most" not in values:
        raise UsageError("A policy and its bounds are given as autoscale:policy=ds2,min=1,max=8, with its options.")
    policy = values.pop("policy")
    own = {name: _number(name, values.pop(name)) for name in _KINDS.keys() & values.keys()}
    options = ",".join(f"{name}={value}" for name, value in values.items())
    return AutoscaleSettings(f"{policy}:{options}" if options else policy, **own)


def _number(name: str, value: str) -> Any:
    try:
        return _KINDS[name](value)
    except ValueError:
        shown = next((short for short, full in _NAMES.items() if full == name), name)
        raise UsageError(f"{shown} of autoscale is a number, not {value!r}.") from None


_WITH = " with "  # between a mechanism and the fault of a disturbed run
_IN_REAL_TIME = ", real time"  # behind a mechanism that runs so

# Of the duration: a machine on which three times as long a load shows no migration crossed is too slow for the load.
LOAD_MOST = 3
_MOVED_BYTES_S = 32 << 20  # of a state that is read from a disk on which it is written too
_KEY_BYTES = 16


def shares_store(mechanism: str) -> bool:
    """Returns whether a mechanism's workers share a store of state, which has one commit in an epoch."""
    return "redis" in catalog.options(mechanism)


@dataclass(frozen=True)
class Experiment(Parameters):
    """A set of runs meant to be compared, as their parameters say."""

    @property
    def longest_s(self) -> float:
        """Seconds that the load lasts at most, lead-in included.

        It goes on past its end while a migration is not crossed or steady state is not back, on a slow machine or with
        a state of gigabytes.
        """
        moves_s = self.keys * (_KEY_BYTES + self.value_bytes) // _MOVED_BYTES_S
        return self.lead_in_s + LOAD_MOST * self.duration_s + moves_s

    @property
    def records(self) -> int:
        """Records of the whole load, lead-in included."""
        return self.schedule().records_until(int((self.lead_in_s + self.duration_s) * 1e6) - 1)

    def schedule(self) -> Schedule:
        """Returns when each record is due; raises GeneratorError for a shape that cannot be."""
        return make_schedule(self.rate_shape, self.rate, self.lead_in_s)

    def digest(self) -> str:
        """Returns a short digest of all parameters, and of the file of rates if there is one."""
        path = csv_path(self.rate_shape)
        rates = b"" if path is None else path.read_bytes()
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode() + rates).hexdigest()[:12]

    @property
    def most_workers(self) -> int:
        """Most workers that there are in a run, unless its plan file asks for more."""
        return max(self.workers, self.workers_goal, self.autoscale.most if self.autoscale else 0)

    @property
    def autoscale(self) -> AutoscaleSettings | None:
        """How a policy rescales the query, None where a schedule does."""
        return parse_autoscale(self.migration)

    @property
    def faults(self) -> tuple[str, ...]:
        """Faults under which each mechanism is run once more."""
        return tuple(self.fault.split(",")) if self.fault is not None else ()

    @property
    def by_results(self) -> bool:
        """Whether latencies are those of results, in all runs.

        Of NEXMark's queries another engine tells no others.
        """
        engines = any(name in catalog.engines() for name in self.mechanisms)
        return self.workload == "nexmark" and (engines or self.latency_of == "results")

    def compared(self) -> list[tuple[str, str]]:
        """Returns what is compared as (mechanism, mode), each in every mode.

        A baseline has a mode of its own, and a store that all workers share has no real time.
        """
        return [(name, mode) for name in self.mechanisms for mode in self._modes_of(name)]

    def _modes_of(self, mechanism: str) -> tuple[str, ...]:
        own = catalog.mode_of(mechanism)
        if own is None:
            return tuple(mode for mode in self.modes if mode != REAL_TIME or not shares_store(mechanism))
        return (own,)

    def runs(self) -> list["Run"]:
        """Returns the runs in the order they are made: interleaved by round, the order in each drawn from the seed."""
        draw, pairs = np.random.default_rng(self.seed), self.compared()
        out: list[Run] = []
        for number in range(self.rounds):
            order = draw.permutation(len(pairs)) if number else np.arange(len(pairs))
            for mechanism, mode in (pairs[i] for i in order):
                out.append(Run(self, mechanism, number, len(out), mode=mode))
                for fault in self.faults if mechanism != "none" else ():  # which never migrates
                    out.append(Run(self, mechanism, number, len(out), fault=fault, mode=mode))
        return out


@dataclass(frozen=True)
class Run:
    """One mechanism under the experiment's workload; `round` and `number` count from 0.

    `fault` is the one in its first migration, None for an undisturbed run.
    """

    experiment: Experiment
    mechanism: str
    round: int
    number: int
    fault: str | None = None
    mode: str = MICRO_BATCH

    @property
    def folder(self) -> str:
        """Name of the run's folder."""
        return f"{self.number:02d}-{self.short}-r{self.round}{'-fault' if self.fault else ''}"

    @property
    def real_time(self) -> bool:
        """Whether Spark runs the query in real-time mode."""
        return self.mode == REAL_TIME

    @property
    def short(self) -> str:
        """Mechanism and mode in a word, as folders are named by it."""
        return f"{self.mechanism}-{REAL_TIME}" if self._named_by_mode else self.mechanism

    @property
    def _named_by_mode(self) -> bool:
        return self.real_time and catalog.mode_of(self.mechanism) is None

    @property
    def slots(self) -> int:
        """Tasks that own state at once in real time: the most workers while the query runs."""
        return self.experiment.slots or self.experiment.most_workers

    @property
    def title(self) -> str:
        """What results call the run's mechanism; in real time, or disturbed, it is another: no figure merges them."""
        name = f"{self.mechanism}{_IN_REAL_TIME}" if self._named_by_mode else self.mechanism
        return f"{name}{_WITH}{self.fault}" if self.fault else name

    def options(self) -> dict[str, Any]:
        """Returns the options that this run's mechanism knows."""
        return catalog.known(self.mechanism, self.experiment.options)

    def to_json(self) -> dict[str, Any]:
        """Returns the run's parameters."""
        return {
            **self.experiment.to_json(),
            "mechanism": self.title,
            "mode": self.mode,
            "round": self.round,
            "number": self.number,
            "seed": self.experiment.seed,
        }

    @classmethod
    def read(cls, folder: Path) -> "Run":
        """Reads run.json of a run's folder."""
        data = json.loads((folder / "run.json").read_text())
        title, number, round_ = data.pop("mechanism"), data.pop("number"), data.pop("round")
        mode = data.pop("mode", MICRO_BATCH)
        mechanism = title.partition(_WITH)[0].removesuffix(_IN_REAL_TIME)
        return cls(Experiment.from_json(data), mechanism, round_, number, fault=fault_of(title), mode=mode)


def fault_of(title: str) -> str | None:
    """Returns the fault of a run by what results call its mechanism; None for an undisturbed one.

    >>> fault_of("flink-adaptive with worker@migrating")
    'worker@migrating'
    """
    return title.partition(_WITH)[2] or None
