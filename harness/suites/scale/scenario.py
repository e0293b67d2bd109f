"""What `./inv simulate-scale` simulates, from its options: sizes, shares and goal, and a prediction per mechanism."""

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.experiment.make import mechanism_options
from harness.experiment.schedules import megaphone_pattern
from harness.options.declared import read_given
from harness.suites.options import SCALE
from harness.suites.scale.costs import Costs
from harness.suites.scale.load import zipf_bins
from harness.suites.scale.simulate import Prediction, Setting, predict
from impls import catalog
from impls.errors import UsageError
from impls.placement import Placing, policies

__all__ = ["Scenario", "at_scale", "make_scenario", "predict_all", "shares_of"]

_WORKERS_MAX = 10_000
_KEY_BYTES = 8


@dataclass(frozen=True)
class Scenario:
    """One migration of a query that is larger than this machine.

    Attributes:
        workers, workers_goal: workers before and after (equal: Megaphone's pattern, which moves a quarter of the bins).
        bins: a power of two. The runtime's limit of 16384 bins is not the mechanisms'.
        state_bytes: in all; bins are of one size. keys: they matter to the Zipf law only.
        rate: records per second in all. options: of every mechanism that knows them.
    """

    workers: int = 1000
    workers_goal: int = 1000
    bins: int = 1 << 16
    state_bytes: int = 10**12
    rate: int = 2_500_000
    distribution: str = "uniform"
    exponent: float = 1.0
    seed: int = 1
    mechanisms: tuple[str, ...] = field(default_factory=lambda: tuple(catalog.names()))
    options: Mapping[str, Any] = field(default_factory=dict)

    def setting(self, costs: Costs) -> Setting:
        """Returns what is simulated, the same for every mechanism."""
        initial = (np.arange(self.bins) * self.workers // self.bins).astype(np.int32)
        keys = max(self.state_bytes // _KEY_BYTES, self.bins)
        return Setting(
            initial=initial,
            goal=self._goal(initial),
            sizes=np.full(self.bins, self.state_bytes // self.bins, np.int64),
            shares=shares_of(self.distribution, self.bins, keys, self.exponent, self.seed),
            rate=float(self.rate),
            costs=costs,
            options=dict(self.options),
            seed=self.seed,
        )

    def _goal(self, initial: NDArray[np.int32]) -> NDArray[np.int32]:
        if self.workers == self.workers_goal:
            return megaphone_pattern(initial, self.workers)
        return policies()["minimal_move"](Placing(initial, self.workers_goal, None, None))


def shares_of(distribution: str, bins: int, keys: int, exponent: float, seed: int) -> NDArray[np.float64]:
    """Returns each bin's share of the records; raises UsageError for a distribution that is not simulated."""
    if distribution not in {"uniform", "zipf"}:
        raise UsageError(f"The simulator knows the distributions uniform and zipf, not {distribution!r}.")
    return zipf_bins(bins, keys, exponent if distribution == "zipf" else 0.0, seed)


def make_scenario(given: Mapping[str, Any]) -> Scenario:
    """Builds a scenario from the options of the command line that were given; raises UsageError for bad ones."""
    fields = {field.name for field in dataclasses.fields(Scenario)}
    values = {name: value for name, value in read_given(SCALE, given).items() if name in fields}
    if "workers" in values:
        values["workers"], values["workers_goal"] = values["workers"]
    values["options"] = mechanism_options(values.pop("options", ""))
    scenario = Scenario(**values)
    _check(scenario)
    return scenario


def predict_all(
    setting: Setting, mechanisms: Sequence[str], jobs: int | None = None
) -> Iterator[tuple[Prediction | None, str]]:
    """Yields the prediction of each mechanism, or None and why there is none, as they were named.

    Mechanisms are simulated in `jobs` processes (one per core by default); their number changes no figure.
    """
    jobs = min(jobs or os.cpu_count() or 1, len(mechanisms))
    if jobs == 1:
        yield from (_outcome(name, setting) for name in mechanisms)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(_outcome, mechanisms, [setting] * len(mechanisms))


def _outcome(name: str, setting: Setting) -> tuple[Prediction | None, str]:
    """Returns a prediction, or why there is none: one mechanism that cannot keep up does not end the others."""
    try:
        return predict(name, setting), ""
    except UsageError as error:
        return None, str(error)


def _check(scenario: Scenario) -> None:
    most = max(scenario.workers, scenario.workers_goal)
    if most > min(scenario.bins, _WORKERS_MAX):
        raise UsageError(f"{most} workers are too many for {scenario.bins} bins, or above {_WORKERS_MAX}.")
    if scenario.workers == scenario.workers_goal == 1:
        raise UsageError("Megaphone's pattern needs at least 2 workers: give --workers 2, or 1:2 for a rescale.")
    if scenario.state_bytes < scenario.bins:
        raise UsageError(f"{scenario.state_bytes} bytes are too few for {scenario.bins} bins: give a byte per bin.")
    if not scenario.mechanisms:
        raise UsageError(f"No mechanism is named: give at least one of {', '.join(catalog.names())}.")
    for name in scenario.mechanisms:
        known = catalog.options(name)
        catalog.make(name, **{option: value for option, value in scenario.options.items() if option in known})
    shares_of(scenario.distribution, 2, 2, scenario.exponent, scenario.seed)


def at_scale(costs: Costs, bandwidth_bytes_s: float | None = None) -> Costs:
    """Returns costs for workers that have a core each, and pull and copy no faster than a network lets them."""
    most = float("inf") if bandwidth_bytes_s is None else bandwidth_bytes_s
    return replace(
        costs,
        slots=0,
        pull_bytes_s=min(costs.pull_bytes_s, most),
        checkpoint_bytes_s=min(costs.checkpoint_bytes_s, most),
        replica_bytes_s=min(costs.replica_bytes_s, most),
    )
