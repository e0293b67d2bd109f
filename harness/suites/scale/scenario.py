"""What is simulated, from options or from a result; predictions of it, and how far they are from what was measured."""

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, fields, replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.experiment.description import Experiment
from harness.experiment.make import mechanism_options
from harness.experiment.schedules import megaphone_pattern, plan_for
from harness.options.declared import read_given
from harness.suites.options import SCALE
from harness.suites.scale.calibrate import read_runs
from harness.suites.scale.load import zipf_bins
from harness.suites.scale.network import Costs, ModelNetwork
from harness.suites.scale.simulate import Prediction, SimulationSetting, predict
from impls import catalog
from impls.errors import UsageError
from impls.placement import Placing, initial, policies

FIGURES = ("steady_p50_ms", "peak_ms", "duration_s")
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
        hosts: over which workers are dealt out, 0 for nothing between workers.
        net_mbps: megabits per second that a host sends, and receives, 0 for as many as its processes can.
        net_delay_ms: of each packet between hosts.
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
    hosts: int = 0
    net_mbps: float = 0.0
    net_delay_ms: float = 0.0

    @property
    def network(self) -> ModelNetwork | None:
        """The network between the hosts."""
        if not self.hosts:
            return None
        workers, most = max(self.workers, self.workers_goal), self.net_mbps * 1e6 / 8 or float("inf")
        return ModelNetwork.of(self.hosts, workers, bytes_s=most, delay_ms=self.net_delay_ms, seed=self.seed)

    def setting(self, costs: Costs) -> SimulationSetting:
        """Returns what is simulated, the same for every mechanism."""
        begin = (np.arange(self.bins) * self.workers // self.bins).astype(np.int32)
        keys = max(self.state_bytes // _KEY_BYTES, self.bins)
        return SimulationSetting(
            initial=begin,
            goal=self._goal(begin),
            sizes=np.full(self.bins, self.state_bytes // self.bins, np.int64),
            shares=_shares_of(self.distribution, self.bins, keys, self.exponent, self.seed),
            rate=float(self.rate),
            costs=costs,
            options=dict(self.options),
            seed=self.seed,
            network=self.network,
        )

    def _goal(self, begin: NDArray[np.int32]) -> NDArray[np.int32]:
        if self.workers == self.workers_goal:
            return megaphone_pattern(begin, self.workers)
        return policies()["minimal_move"](Placing(begin, self.workers_goal, None, None))


def _shares_of(distribution: str, bins: int, keys: int, exponent: float, seed: int) -> NDArray[np.float64]:
    """Returns each bin's share of the records; raises UsageError for a distribution that is not simulated."""
    if distribution not in {"uniform", "zipf"}:
        raise UsageError(f"The simulator knows the distributions uniform and zipf, not {distribution!r}.")
    return zipf_bins(bins, keys, exponent if distribution == "zipf" else 0.0, seed)


def make_scenario(given: Mapping[str, Any]) -> Scenario:
    """Builds a scenario from the options of the command line that were given; raises UsageError for bad ones."""
    known = {one.name for one in fields(Scenario)}
    values = {name: value for name, value in read_given(SCALE, given).items() if name in known}
    if "workers" in values:
        values["workers"], values["workers_goal"] = values["workers"]
    values["options"] = mechanism_options(values.pop("options", ""))
    scenario = Scenario(**values)
    _check(scenario)
    return scenario


def predict_all(
    setting: SimulationSetting, mechanisms: Sequence[str], jobs: int | None = None
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


def _outcome(name: str, setting: SimulationSetting) -> tuple[Prediction | None, str]:
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
    if scenario.hosts > most:
        raise UsageError(f"{scenario.hosts} hosts are more than the {most} workers on them.")
    if not scenario.hosts and (scenario.net_mbps or scenario.net_delay_ms):
        raise UsageError("A network is between hosts: say how many there are with --hosts.")
    if scenario.state_bytes < scenario.bins:
        raise UsageError(f"{scenario.state_bytes} bytes are too few for {scenario.bins} bins: give a byte per bin.")
    if not scenario.mechanisms:
        raise UsageError(f"No mechanism is named: give at least one of {', '.join(catalog.names())}.")
    for name in scenario.mechanisms:
        catalog.make(name, **catalog.known(name, scenario.options))
    _shares_of(scenario.distribution, 2, 2, scenario.exponent, scenario.seed)


def at_scale(costs: Costs, bandwidth_bytes_s: float | None = None) -> Costs:
    """Returns costs for workers that have a core each, and pull and copy no faster than a network lets them."""
    most = float("inf") if bandwidth_bytes_s is None else bandwidth_bytes_s
    return replace(
        costs,
        slots=0,
        pull_bytes_s=min(costs.pull_bytes_s, most),
        net_bytes_s=min(costs.net_bytes_s, most),
        checkpoint_bytes_s=min(costs.checkpoint_bytes_s, most),
        replica_bytes_s=min(costs.replica_bytes_s, most),
    )


@dataclass(frozen=True)
class Compared:
    """One figure of a run's first migration; `load` is met or late, and a late run says little."""

    run: str
    mechanism: str
    load: str
    figure: str
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted / self.measured - 1


def compare(folder: Path, costs: Costs) -> list[Compared]:
    """Predicts every valid run of a result, once per mechanism.

    Raises:
        UsageError: the result cannot be read, has no valid run, or a load that the simulator does not know.
    """
    runs = read_runs([folder], "check predictions against")
    experiment = Experiment.from_json({k: v for k, v in runs[0].parameters.items() if k != "digest"})
    entries = [run.entry for run in runs]
    setting = _setting_of(experiment, _bin_bytes(entries, experiment), costs, runs[0].cores)

    @cache
    def predicted(mechanism: str) -> Prediction:
        return predict(mechanism, setting)

    return [row for entry in entries for row in _rows(entry, predicted(entry["mechanism"]))]


def errors_of(rows: Sequence[Compared]) -> dict[str, float | None]:
    """Returns the median size of each figure's error over the runs whose load was met, None if there are none."""
    found = {name: [abs(row.error) for row in rows if row.figure == name and row.load == "met"] for name in FIGURES}
    return {name: float(np.median(errors)) if errors else None for name, errors in found.items()}


def _setting_of(experiment: Experiment, bin_bytes: int, costs: Costs, cores: int) -> SimulationSetting:
    """Returns the first migration of an experiment as a setting; raises UsageError where it has none to simulate."""
    if experiment.rate_shape != "constant":
        raise UsageError("The simulator knows constant rates only: check it with another result.")
    bins = experiment.bins
    start = initial(bins, experiment.workers, experiment.policy)
    shares = _shares_of(experiment.distribution, bins, experiment.keys, experiment.exponent, experiment.seed)
    sizes = np.full(bins, bin_bytes, np.int64)
    steps = plan_for(experiment)
    goal = steps[0].goal(start, shares * experiment.rate, sizes) if steps else start
    costs_here = replace(costs, slots=cores, record_us=costs.record_us + experiment.cost_us)
    workers = 1 + int(max(start.max(), goal.max()))
    network = ModelNetwork.of(experiment.cluster, workers, seed=experiment.seed) if experiment.cluster else None
    options, rate = dict(experiment.options), float(experiment.rate)
    return SimulationSetting(start, goal, sizes, shares, rate, costs_here, options, experiment.seed, network)


def _bin_bytes(runs: Sequence[dict[str, Any]], experiment: Experiment) -> int:
    """Returns the bytes of a bin as a migration of the result had to move them, else those of a count per key."""
    moves = [m for entry in runs for m in entry["migrations"] if m.get("required_bins") and m.get("required_bytes")]
    if moves:
        return int(np.median([m["required_bytes"] / m["required_bins"] for m in moves]))
    return max(experiment.keys * (_KEY_BYTES + experiment.value_bytes) // experiment.bins, 1)


def _rows(entry: dict[str, Any], predicted: Prediction) -> Iterator[Compared]:
    first = entry["migrations"][0] if entry["migrations"] else {}
    measured = {
        "steady_p50_ms": entry["latency_ms"]["steady"].get("p50"),
        "peak_ms": first.get("peak_ms"),
        "duration_s": first.get("duration_s"),
    }
    for figure in FIGURES:
        value, guess = measured[figure], getattr(predicted, figure)
        if value and guess is not None:
            yield Compared(Path(entry["folder"]).name, entry["mechanism"], entry["load"], figure, value, guess)
