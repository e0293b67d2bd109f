"""What `./inv autoscale` runs: an experiment for each load and policy, and two of a number of workers that is fixed."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from generators.rates import Schedule, make_schedule
from harness.experiment.description import Experiment, parse_autoscale
from harness.experiment.make import make_experiment, mechanism_options
from harness.experiment.parameters import MICRO_BATCH
from harness.measure.scores import Needed
from harness.options import parse_list, parse_names
from harness.options.declared import read_given
from harness.results.place import Described
from harness.suites.options import AUTOSCALE, AUTOSCALE_QUICK
from impls import catalog
from impls.errors import UsageError

LOADS = ("step", "surge", "sine", "spike", "drift", "steady")
FIXED = ("right", "most")  # numbers of workers that never change: what the highest rate needs, and as many as allowed
_LEAD_S, _KEYS = 5.0, 20_000
_PER_S = 4
_EPOCH_S = 0.5  # most of an epoch in micro-batches, were all workers there
_OWN = {"ds2": "catch_up_s=10", "threshold": "stabilisation_s=10", "dhalion": "backlog_s=1,calm_s=10"}
_WINDOW_S = 0.5  # rates are those of so many seconds before and behind


@dataclass(frozen=True)
class LoadShape:
    """A load.

    Attributes:
        name: as an option names it.
        base: base rate in units.
        shape: of the rate, as `generators.rates` reads it; times count from the end of the lead-in.
        step_s: when the rate steps, on the same clock; None where it does not.
        more: fields of the experiment besides.
    """

    name: str
    base: float
    shape: str = "constant"
    step_s: float | None = None
    more: Mapping[str, Any] | None = None

    def rate(self, unit: float) -> int:
        """Returns the base rate in records/s, where one worker does `unit` records/s."""
        return max(1, round(self.base * unit))

    def schedule(self, unit: float, lead_s: float) -> Schedule:
        """Returns when each record is due."""
        return make_schedule(self.shape, self.rate(unit), lead_s)


def load_shapes(duration_s: float) -> dict[str, LoadShape]:
    """Returns the loads by name, at the length of a run: its first third is calm where there is a step.

    - step, surge: to 5 and 50 times the rate; the most needed are 3.5 and 6.5 units.
    - sine: two periods between 0.5 and 4.5 units.
    - spike: from 0.7 units to 3.5 in an eighth of the run, and slowly back.
    - drift: 2.5 units of which 90 % go to a quarter of the keys, and that moves through all of them.
    - steady: 2.5 units.
    """
    third, eighth = duration_s / 3, duration_s / 8
    drift = {"distribution": "drift:keys=5000,share=0.9,speed=1000", "policy": "load_aware"}
    loads = (
        LoadShape("step", 0.7, f"step:{third:g}=5", third),
        LoadShape("surge", 0.13, f"step:{third:g}=50", third),
        LoadShape("sine", 2.5, f"sine:amplitude=0.8,period={duration_s / 2:g}"),
        LoadShape("spike", 0.7, f"spike:at={2 * eighth:g},factor=5,rise={eighth:g},decay={eighth:g}"),
        LoadShape("drift", 2.5, more=drift),
        LoadShape("steady", 2.5),
    )
    return {one.name: one for one in loads}


def needed_of(schedule: Schedule, unit: float, most: int) -> Needed:
    """Returns how many workers a load needs, where each does `unit` records/s."""
    return Needed(partial(_rate, schedule), unit, 1, most)


def _rate(schedule: Schedule, at_s: float) -> float:
    low, high = max(at_s - _WINDOW_S, 0.0), at_s + _WINDOW_S
    due = schedule.records_until(int(high * 1e6)) - schedule.records_until(int(low * 1e6))
    return due / (high - low)


@dataclass(frozen=True)
class AutoscaleCase:
    """A load under a policy, or under a fixed number of workers: one experiment, a run of each mechanism in it."""

    load: LoadShape
    policy: str
    experiment: Experiment


@dataclass(frozen=True)
class AutoscaleSuite(Described):
    """All loads x policies x mechanisms; what the fields mean is in `harness.suites.options.AUTOSCALE`."""

    load: tuple[str, ...]
    policy: tuple[str, ...]
    mechanism: tuple[str, ...]
    mode: str
    duration: float
    most: int
    cost_us: float
    utilisation: float
    objective_ms: float
    interval: float
    cooldown: float
    bins: int
    options: Mapping[str, Any]
    rounds: int
    seed: int

    @property
    def unit(self) -> float:
        """Records/s that one worker does at the utilisation wanted."""
        return self.utilisation * 1e6 / self.cost_us

    def to_json(self) -> dict[str, Any]:
        """Returns all parameters."""
        return {"name": "autoscale", **asdict(self)}

    def loads(self) -> list[LoadShape]:
        """Returns the loads, in the order in which they were named."""
        known = load_shapes(self.duration)
        return [known[name] for name in self.load]

    def cells(self) -> list[AutoscaleCase]:
        """Returns the experiments in the order they are made; raises UsageError for what cannot be run."""
        return [cell for load in self.loads() for cell in self._cells_of(load)]

    def _cells_of(self, load: LoadShape) -> Iterator[AutoscaleCase]:
        begin = self.right(load, 0.0)
        for policy in self.policy:
            yield AutoscaleCase(load, policy, self._experiment(load, policy, begin))
        for name, workers in zip(FIXED, (self.right(load), self.most), strict=True):
            yield AutoscaleCase(load, name, self._fixed(load, name, workers))

    def right(self, load: LoadShape, at_s: float | None = None) -> int:
        """Returns how many workers a load needs at a time, or at its highest rate."""
        needed = needed_of(load.schedule(self.unit, _LEAD_S), self.unit, self.most)
        return max(map(needed.at, self._times() if at_s is None else [at_s]))

    def needs(self, load: LoadShape) -> list[list[float]]:
        """Returns rows of seconds since the load's begin and workers needed, as a real number."""
        needed = needed_of(load.schedule(self.unit, _LEAD_S), self.unit, self.most)
        return [[at_s, round(needed.rate(at_s) / self.unit, 3)] for at_s in self._times()]

    def _times(self) -> list[float]:
        return [step / _PER_S for step in range(math.ceil(_PER_S * (_LEAD_S + self.duration)))]

    def in_batches(self) -> "AutoscaleSuite":
        """Returns the same in micro-batches, which the simulator knows."""
        return replace(self, mode=MICRO_BATCH)

    def _experiment(self, load: LoadShape, policy: str, workers: int) -> Experiment:
        name, _, own = policy.partition(":")
        target = f"utilisation={self.utilisation:g}" if name in {"ds2", "threshold"} else ""
        given = [text for text in (target, own or _OWN.get(name, "")) if text]
        bounds = f"min=1,max={self.most},interval_s={self.interval:g},cooldown_s={self.cooldown:g},warmup=1"
        migration = ",".join([f"autoscale:policy={name}", bounds, *given])
        parse_autoscale(migration)
        more = {"mechanism": ",".join(self.mechanism), "migration": migration, "options": dict(self.options)}
        return self._made(load, name, workers, **more)

    def _fixed(self, load: LoadShape, name: str, workers: int) -> Experiment:
        return self._made(load, name, workers, mechanism="none", migration="none", rounds=1)

    def _made(self, load: LoadShape, name: str, workers: int, **more: Any) -> Experiment:
        limit = math.ceil(self.most * 1e6 / self.cost_us * _EPOCH_S) if self.mode == MICRO_BATCH else None
        fields = {
            "name": f"autoscale-{load.name}-{name}", "mode": self.mode, "workers": workers, "keys": _KEYS,
            "bins": self.bins, "rate": load.rate(self.unit), "rate_shape": load.shape, "duration": self.duration,
            "lead_in": _LEAD_S, "cost_us": self.cost_us, "rounds": self.rounds, "seed": self.seed,
            "max_offsets_per_trigger": limit, **(load.more or {}), **more,
        }  # fmt: skip
        return make_experiment(**fields)


def suite_from(options: Mapping[str, Any]) -> AutoscaleSuite:
    """Returns what the options of `./inv autoscale` ask for; raises UsageError for bad ones."""
    given = {option.name: options.get(option.name) for option in AUTOSCALE if option.field}
    values = {option.field: option.default for option in AUTOSCALE if option.field}
    values |= AUTOSCALE_QUICK if options.get("quick") else {}
    values |= read_given(AUTOSCALE, given)
    values["load"] = parse_names(values["load"], LOADS, "load")
    policy = str(values["policy"])
    values["policy"] = tuple(part.strip() for part in policy.split(";" if ":" in policy else ",") if part.strip())
    values["mechanism"] = parse_list(values["mechanism"])
    values["options"] = mechanism_options(str(options.get("option") or ""))
    for name in values["mechanism"]:
        if name not in catalog.names() or name == "none":
            raise UsageError(f"The mechanism {name!r} cannot rescale a query of this runtime: leave it out.")
    suite = AutoscaleSuite(**values)
    suite.cells()
    return suite
