"""The description of an experiment: every parameter with its default, and the runs that follow from it."""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from generators.rates import Schedule
from generators.shapes import csv_path, make_schedule
from impls import catalog

__all__ = ["DEFAULT_MECHANISMS", "WORKLOADS", "Experiment", "Run"]

DEFAULT_MECHANISMS = ("none", "runtime-restart", "megaphone-all-at-once", "megaphone-fluid", "megaphone-batched")
WORKLOADS = ("dense", "hash", "nexmark")
_WITH = " with "  # between a mechanism and the fault of a disturbed run


@dataclass(frozen=True)
class Experiment:
    """A set of runs meant to be compared.

    Attributes:
        name: first part of the result folder's name.
        mechanisms: mechanisms to run; `options` are those of every mechanism that knows them.
        workload: dense (counts in an array per bin, "key-count"), hash (an entry per key, "hash-count") or nexmark.
        query, profile, out_of_order: of nexmark: q0 to q8; default or large-state:OPTIONS; group=N,delay=SECONDS.
        keys: number of keys; distribution: uniform, zipf with `exponent`, or drift:OPTION=VALUE,...
        value_bytes: bytes that hash keeps per key besides the count.
        cost_us: what a record costs a worker; cost: wait (a remote call) or compute.
        rate: base rate in records per second; rate_shape: how it changes, see `generators.shapes`.
        duration_s: length of the measured load; lead_in_s: load before it.
        workers, workers_goal: workers at the start, and after the rescale (equal: Megaphone's pattern instead).
        bins: number of bins. policy: placement policy of a rescale, see `impls.placement`.
        migration: pattern, rescale, rebalance (by the policy), none, or the path of a plan file.
        seed: of keys and of the order of runs; rounds: repetitions.
        max_offsets_per_trigger: Spark's limit on records per epoch, None for no limit.
        bootstrap: an existing broker, None for an embedded one.
        state_dir: parent folder of the workers' state, None for the run's folder.
        durability: what the state survives: none, process or host; see `impls.stream`.
        master: Spark master, None for local.
        fault: victim@migrating or victim@point: a fault in each mechanism's first migration, in a second run next to
            the undisturbed one; None for none.
    """

    name: str = "key-count"
    mechanisms: tuple[str, ...] = DEFAULT_MECHANISMS
    options: dict[str, Any] = field(default_factory=dict)
    workload: str = "dense"
    query: str = ""
    profile: str = "default"
    out_of_order: str = ""
    keys: int = 4_000_000
    distribution: str = "uniform"
    exponent: float = 1.0
    value_bytes: int = 0
    cost_us: float = 0.0
    cost: str = "wait"
    rate: int = 10_000
    rate_shape: str = "constant"
    duration_s: float = 36.0
    lead_in_s: float = 5.0
    workers: int = 4
    workers_goal: int = 4
    bins: int = 256
    policy: str = "minimal_move"
    migration: str = "pattern"
    seed: int = 1
    rounds: int = 1
    max_offsets_per_trigger: int | None = None
    bootstrap: str | None = None
    state_dir: str | None = None
    durability: str = "process"
    master: str | None = None
    fault: str | None = None
    input_partitions: int = 2
    result_partitions: int = 4

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

    def to_json(self) -> dict[str, Any]:
        """Returns all parameters."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Experiment":
        """Reads what `to_json` wrote."""
        return cls(**{**data, "mechanisms": tuple(data["mechanisms"])})

    def runs(self) -> list["Run"]:
        """Returns the runs in the order they are made: interleaved by round, the order in each drawn from the seed."""
        draw = np.random.default_rng(self.seed)
        out: list[Run] = []
        for number in range(self.rounds):
            order = draw.permutation(len(self.mechanisms)) if number else np.arange(len(self.mechanisms))
            for mechanism in (self.mechanisms[i] for i in order):
                out.append(Run(self, mechanism, number, len(out)))
                if self.fault is not None and mechanism != "none":  # which never migrates
                    out.append(Run(self, mechanism, number, len(out), disturbed=True))
        return out


@dataclass(frozen=True)
class Run:
    """One mechanism under the experiment's workload; `round` and `number` count from 0."""

    experiment: Experiment
    mechanism: str
    round: int
    number: int
    disturbed: bool = False

    @property
    def folder(self) -> str:
        """Name of the run's folder."""
        return f"{self.number:02d}-{self.mechanism}-r{self.round}{'-fault' if self.disturbed else ''}"

    @property
    def fault(self) -> str | None:
        """The fault in the run's first migration, None for an undisturbed run."""
        return self.experiment.fault if self.disturbed else None

    @property
    def title(self) -> str:
        """What results call the run's mechanism; a disturbed one is another, so that no figure merges the two."""
        return f"{self.mechanism}{_WITH}{self.fault}" if self.disturbed else self.mechanism

    def options(self) -> dict[str, Any]:
        """Returns the options that this run's mechanism knows."""
        known = catalog.options(self.mechanism)
        return {name: value for name, value in self.experiment.options.items() if name in known}

    def to_json(self) -> dict[str, Any]:
        """Returns the run's parameters."""
        return {
            **self.experiment.to_json(),
            "mechanism": self.title,
            "round": self.round,
            "number": self.number,
            "seed": self.experiment.seed,
        }

    @classmethod
    def read(cls, folder: Path) -> "Run":
        """Reads run.json of a run's folder."""
        data = json.loads((folder / "run.json").read_text())
        title, number, round_ = data.pop("mechanism"), data.pop("number"), data.pop("round")
        mechanism, _, fault = title.partition(_WITH)
        return cls(Experiment.from_json(data), mechanism, round_, number, disturbed=bool(fault))
