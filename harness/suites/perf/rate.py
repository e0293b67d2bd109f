"""Part rate: the highest rate that the same count holds on Spark's own state and on this runtime.

A rate is held with a p99 below one second and no growing backlog.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.experiment.description import Experiment
from harness.measure.hdr import percentiles
from harness.results.runfiles import RunFiles
from harness.suites.perf.part import Check, Part, PartResult, Scale, Table, interleave
from harness.suites.perf.steady import SIDES, steady_experiment

_FIRST = {"Spark": 20_000, "live": 40_000}  # records/s, where either search begins
_PRECISION = 1.2
_ROUND_TO = 500  # records per second
_LIMIT_MS = 1_000.0
_SLOPE = 0.02  # s of latency per s of load: two records of a hundred too many
_SKIP = 1 / 3  # of the load behind the lead-in: batches that were late while the JVM warmed up are caught up by then
_BOUND = 1.5


@dataclass
class Search:
    """Asks for one rate after the other, in records per second; `tell` says whether the last one held.

    The rate is doubled until it does not hold, then the bracket is halved on a logarithmic scale.

    Attributes:
        rate: the rate to try next, None when the search is over.
        precision: the search ends when the bracket's ends are this factor apart, or less.
        least, most: rates below and above which it does not look.
        low: the highest rate that held, None so far; `high`: the lowest that did not.
    """

    rate: int | None
    precision: float = 1.1
    least: int = 1_000
    most: int = 200_000
    low: int | None = None
    high: int | None = None

    def tell(self, *, holds: bool) -> None:
        """Takes in whether `rate` held and chooses the next one."""
        if self.rate is None:
            raise ValueError("The search is over.")
        if holds:
            self.low = self.rate
        else:
            self.high = self.rate
        self.rate = self._next()

    def _next(self) -> int | None:
        if self.high is None:
            assert self.low is not None
            return None if self.low >= self.most else min(self.low * 2, self.most)
        if self.low is None:
            return None if self.high <= self.least else max(self.high // 2, self.least)
        middle = round(math.sqrt(self.low * self.high) / _ROUND_TO) * _ROUND_TO
        done = self.high / self.low <= self.precision or not self.low < middle < self.high
        return None if done else middle


@dataclass(frozen=True)
class RateProbe:
    """How one rate went: p99 in ms, and seconds by which the median latency grew per second of load."""

    rate: int
    p99_ms: float
    slope: float

    @property
    def holds(self) -> bool:
        """Whether the rate can be held."""
        return self.p99_ms < _LIMIT_MS and self.slope < _SLOPE


def _judge(files: RunFiles, experiment: Experiment) -> RateProbe:
    """Returns how a run's rate went, from the last two thirds of its load."""
    begin = files.start_us + round((experiment.lead_in_s + experiment.duration_s * _SKIP) * 1e6)
    cells = files.cells.take(files.cells.scheduled_us >= begin)
    (p99,) = percentiles(cells.latency_us, cells.count, (99.0,)).tolist()
    line = files.timeline
    rows = line.begin_us >= begin
    slope = float(np.polyfit(line.begin_us[rows] / 1e6, line.p50[rows] / 1e6, 1)[0])
    return RateProbe(experiment.rate, p99 / 1e3, slope)


def _measure(folder: Path, scale: Scale) -> PartResult:
    """Searches both sides in turns, so that both see the same machine; hash-count, 1 M keys."""
    searches = {
        side: Search(scale.pick(_FIRST[side], 4_000), precision=_PRECISION, most=scale.pick(200_000, 8_000))
        for side in SIDES
    }
    probes: dict[str, list[RateProbe]] = {side: [] for side in SIDES}
    while any(search.rate is not None for search in searches.values()):
        for side, search in searches.items():
            if search.rate is not None:
                probes[side].append(_probe(folder, side, search.rate, scale))
                search.tell(holds=probes[side][-1].holds)
    rows = [
        [side, f"{p.rate:,}", f"{p.p99_ms:,.0f}", f"{p.slope:.3f}", "yes" if p.holds else "no"]
        for side in SIDES
        for p in sorted(probes[side], key=lambda p: p.rate)
    ]
    rates = {side: search.low or 0 for side, search in searches.items()}
    table = Table(
        "Rates tried", ("side", "records/s", "p99, ms", "growth of latency, s per s", "held"), rows,
        f"Held: p99 below {_LIMIT_MS:.0f} ms and latency growing by less than {_SLOPE} s per s; hash-count, both sides "
        "writing results to Kafka.",
    )  # fmt: skip
    best = Table("Highest rate held", ("side", "records/s"), [[side, f"{rate:,}"] for side, rate in rates.items()])
    both = searches["live"], searches["Spark"]
    check = Check(
        "highest rate, this runtime over Spark", rate_ratio(*both), _BOUND, at_most=False, edge=least_ratio(*both)
    )
    return PartResult([best, table], [check])


def rate_ratio(over: Search, under: Search) -> float:
    """Returns the highest rate that one search found over the other's.

    Where the other side held none, its lowest rate tried is used instead: the ratio is at least that.
    """
    below = under.low or under.high
    assert below is not None, "a search that is over has tried a rate"
    return (over.low or 0) / below


def least_ratio(over: Search, under: Search) -> float:
    """Returns the least that `rate_ratio` can be: the other side's limit lies below the rate that it did not hold.

    Where it held every rate its limit is not known, and the ratio may be 0.
    """
    return (over.low or 0) / under.high if under.high else 0.0


def _probe(folder: Path, side: str, rate: int, scale: Scale) -> RateProbe:
    experiment, name = steady_experiment(side, scale, rate, scale.pick(15.0, 6.0)), f"{side}-{rate}"
    interleave({name: experiment}, 1, folder)
    return _judge(RunFiles(folder / "runs" / f"00-{name}"), experiment)


PART = Part("Highest rate that is held", 11, _measure)
