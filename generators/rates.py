"""Schedules: when each record of an open-loop stream is due, and rate shapes such as `step:10=5,20=50`.

Curves are held constant over pieces of 10 ms (the producer's own tick), at their value in the middle of each piece.
"""

import csv
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from generators.spec import GeneratorError, options_of, pairs_of, split_choice

_SECOND_US = 1_000_000
_MILLI = 1000  # rates are kept in thousandths of a record per second
_RECORD = _MILLI * _SECOND_US  # one record in thousandths of a record per second times microseconds


class Schedule(ABC):
    """times_us(first, count) gives when records are due, records_until(offset_us) how many are; both from the start.

    Record numbers and times count from 0, and times never decrease. Both are pure functions, so that processes which
    share a stream, or go on with one, agree on it.

    Attributes:
        peak: highest rate, in records per second, rounded up.
    """

    peak: int

    @abstractmethod
    def times_us(self, first: int, count: int) -> NDArray[np.int64]:
        """Returns the scheduled times of records first..first+count-1, in microseconds after the start."""

    @abstractmethod
    def records_until(self, offset_us: int) -> int:
        """Returns how many records are scheduled at `offset_us` microseconds after the start or before."""


class ConstantRate(Schedule):
    """Record i is due floor(i * 1e6 / rate) microseconds after the start; rate in records per second."""

    def __init__(self, rate: int):
        if rate != int(rate) or rate < 1:
            raise GeneratorError(f"The rate must be a whole number of records per second from 1, not {rate}.")
        self.rate = self.peak = int(rate)

    def times_us(self, first: int, count: int) -> NDArray[np.int64]:
        """Returns the scheduled times of records first..first+count-1, in microseconds after the start."""
        seconds, rest = np.divmod(np.arange(first, first + count, dtype=np.int64), self.rate)
        times: NDArray[np.int64] = seconds * _SECOND_US + rest * _SECOND_US // self.rate  # no product overflows
        return times

    def records_until(self, offset_us: int) -> int:
        """Returns how many records are scheduled at `offset_us` microseconds after the start or before."""
        return max(0, -(-(offset_us + 1) * self.rate // _SECOND_US))


class SteppedRate(Schedule):
    """A rate that is constant over pieces of time; the last piece holds on, or all are repeated behind the lead-in.

    With N(t) the integral of the rate, record i is due at floor(t) of the last t with N(t) = i. All is computed in
    integers (rates in thousandths of a record per second, times in microseconds), so it is exact everywhere.

    Args:
        lengths_us: length of each piece, in microseconds; the last one's is of no account unless `repeat`.
        rates: rate of each piece, in records per second, to a thousandth; may be 0, but not without end.
        lead_us, lead_rate: a piece before all others, which is never repeated.
        repeat: begin again with the first piece behind the last one.

    Raises:
        GeneratorError: a rate below 0, a rate of 0 without end, or more than 9e9 records in the pieces.
    """

    def __init__(
        self,
        lengths_us: Sequence[int] | NDArray[np.int64],
        rates: Sequence[float] | NDArray[np.float64],
        *,
        lead_us: int = 0,
        lead_rate: float = 0.0,
        repeat: bool = False,
    ):
        lengths = np.asarray(lengths_us, np.int64)
        self._rates = np.rint(np.asarray(rates, np.float64) * _MILLI).astype(np.int64)
        self._lead_us, self._lead_rate, self._repeat = lead_us, round(lead_rate * _MILLI), repeat
        if self._rates.min() < 0 or self._lead_rate < 0:
            raise GeneratorError("A rate cannot be below 0 records per second.")
        if (self._rates.max() if repeat else self._rates[-1]) == 0:
            raise GeneratorError("The last rate holds on and must be above 0, or a record would never be due.")
        if float(lengths.astype(np.float64) @ self._rates) + float(lead_us) * self._lead_rate > 9e18:
            raise GeneratorError("The schedule holds more than 9e9 records: make it shorter or slower.")
        self._starts = np.concatenate(([0], np.cumsum(lengths)))
        self._done = np.concatenate(([0], np.cumsum(lengths * self._rates)))  # in units of 1e-9 records
        self.peak = -(-max(int(self._rates.max()), self._lead_rate) // _MILLI)

    @property
    def _lead(self) -> int:
        return self._lead_us * self._lead_rate

    def times_us(self, first: int, count: int) -> NDArray[np.int64]:
        """Returns the scheduled times of records first..first+count-1, in microseconds after the start."""
        wanted = np.arange(first, first + count, dtype=np.int64) * _RECORD
        behind = self._lead_us + self._times_behind_lead(np.maximum(wanted - self._lead, 0))
        return np.where(wanted < self._lead, wanted // max(self._lead_rate, 1), behind)

    def _times_behind_lead(self, wanted: NDArray[np.int64]) -> NDArray[np.int64]:
        laps = np.zeros_like(wanted)
        if self._repeat:
            laps, wanted = np.divmod(wanted, self._done[-1])
        # a record due between two pieces belongs to the later one, so a piece of rate 0 has no records
        piece = np.searchsorted(self._done[1:-1], wanted, side="right")
        inside = (wanted - self._done[piece]) // self._rates[piece]
        at: NDArray[np.int64] = laps * self._starts[-1] + self._starts[piece] + inside
        return at

    def records_until(self, offset_us: int) -> int:
        """Returns how many records are scheduled at `offset_us` microseconds after the start or before."""
        end = max(0, offset_us + 1)
        done = min(end, self._lead_us) * self._lead_rate + self._done_behind_lead(max(0, end - self._lead_us))
        return -(-done // _RECORD)

    def _done_behind_lead(self, end: int) -> int:
        laps = 0
        if self._repeat:
            laps, end = divmod(end, int(self._starts[-1]))
        piece = int(np.searchsorted(self._starts[1:-1], end, side="right"))
        inside = (end - int(self._starts[piece])) * int(self._rates[piece])
        return laps * int(self._done[-1]) + int(self._done[piece]) + inside


SHAPES = ("constant", "step", "sine", "spike", "csv", "csv-steps")
_STEPS = "10=5,20=50"
_SINE = {"amplitude": 0.5, "period": 30.0}
_SPIKE = {"at": 10.0, "factor": 10.0, "rise": 2.0, "decay": 5.0}
_TICK_US = 10_000
_PIECES_MAX = 360_000  # an hour of ticks; longer curves have longer pieces
_DAY_S = 86_400.0
_Pieces = tuple[NDArray[np.int64], NDArray[np.float64]]


def csv_path(shape: str) -> Path | None:
    """Returns the file that a shape replays, None for the other shapes."""
    name, rest = split_choice(shape)
    return Path(rest) if name in {"csv", "csv-steps"} else None


def make_schedule(shape: str, rate: int, lead_s: float = 0.0) -> Schedule:
    """Returns the schedule of a shape around the base rate, behind a lead-in at the shape's first rate.

    - constant: the base rate.
    - step:SECONDS=FACTOR,...: the base rate, from each time on FACTOR times the base rate.
    - sine:amplitude=A,period=SECONDS: base rate times 1 + A sin(2 pi t / period), the day of a diurnal load.
    - spike:at=SECONDS,factor=F,rise=SECONDS,decay=SECONDS: from `at` on in a line to F times the base rate within
      `rise`, then back with the time constant `decay`.
    - csv:PATH: lines of seconds and records per second, joined by lines; csv-steps:PATH: each rate holds until the
      next line. Before the first line its rate holds, behind the last line that one's. The base rate plays no part.

    Raises:
        GeneratorError: unknown shape or option, a value out of range, or a file that cannot be replayed.
    """
    ConstantRate(rate)
    name, rest = split_choice(shape)
    if name not in SHAPES:
        raise GeneratorError(f"The rate shape {name!r} is unknown: use one of {', '.join(SHAPES)}.")
    if name == "constant":
        options_of(rest, {}, "the shape 'constant'")
        return ConstantRate(rate)
    if not 0 <= lead_s <= _DAY_S:
        raise GeneratorError(f"The lead-in lasts from 0 to {_DAY_S:g} seconds, not {lead_s:g}.")
    lead_us = round(lead_s * 1e6)
    if name == "sine":
        return SteppedRate(*_sine(rest, rate), lead_us=lead_us, lead_rate=rate, repeat=True)
    lengths, rates = _once(name, rest, rate)
    return SteppedRate(lengths, rates, lead_us=lead_us, lead_rate=float(rates[0]))


def _once(name: str, rest: str, rate: int) -> _Pieces:
    if name == "step":
        return _steps(rest or _STEPS, rate)
    if name == "spike":
        return _spike(rest, rate)
    times, rates = _read_csv(Path(rest))
    return _held(times, rates) if name == "csv-steps" else _joined(times, rates)


def _checked(name: str, value: float, low: float, high: float) -> float:
    if not low <= value <= high:
        raise GeneratorError(f"{name} must be from {low:g} to {high:g}, not {value:g}.")
    return value


def _held(times_us: NDArray[np.int64], rates: NDArray[np.float64]) -> _Pieces:
    """Returns pieces that begin at the times given; the first rate holds from 0 on, the last one without end."""
    edges = np.concatenate(([0], times_us[1:], times_us[-1:]))
    return np.diff(edges), rates


def _steps(text: str, rate: int) -> _Pieces:
    times, factors = [0.0], [1.0]
    for name, factor in pairs_of(text, "the shape 'step'"):
        try:
            at_s = float(name)
        except ValueError:
            raise GeneratorError(f"A step is given as SECONDS=FACTOR, not {name}={factor:g}.") from None
        times.append(_checked("The time of a step", at_s, 0, _DAY_S))
        factors.append(_checked("The factor of a step", factor, 0, 1e6))
    if any(later <= before for before, later in pairwise(times[1:])):
        raise GeneratorError("The times of steps must ascend.")
    return _held(np.rint(np.array(times) * 1e6).astype(np.int64), np.array(factors) * rate)


def _curve(length_us: int, rate_at: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> _Pieces:
    """Returns the pieces of a curve; rate_at takes seconds from its begin."""
    tick = max(_TICK_US, -(-length_us // _PIECES_MAX))
    edges = np.append(np.arange(0, length_us, tick), length_us)
    return np.diff(edges), rate_at((edges[:-1] + edges[1:]) / 2e6)


def _sine(text: str, rate: int) -> _Pieces:
    given = options_of(text, _SINE, "the shape 'sine'")
    amplitude = _checked("The amplitude", given["amplitude"], 0, 1)
    period = _checked("The period", given["period"], 0.1, _DAY_S)
    return _curve(round(period * 1e6), lambda t: rate * (1 + amplitude * np.sin(2 * math.pi / period * t)))


def _spike(text: str, rate: int) -> _Pieces:
    given = options_of(text, _SPIKE, "the shape 'spike'")
    at, rise = (_checked(f"The time {name!r}", given[name], 0, _DAY_S) for name in ("at", "rise"))
    decay = _checked("The time 'decay'", given["decay"], 0.01, _DAY_S)
    excess = rate * (_checked("The factor", given["factor"], 1, 1e6) - 1)
    gone_us = round(decay * math.log(max(excess * 2000, 1)) * 1e6)  # then the excess rounds to nothing
    up = _curve(round(rise * 1e6), lambda t: rate + excess * t / rise)
    down = _curve(gone_us, lambda t: rate + excess * np.exp(-t / decay))
    lengths = np.concatenate(([round(at * 1e6)], up[0], down[0], [0]))
    return lengths, np.concatenate(([rate], up[1], down[1], [rate]))


def _joined(times_us: NDArray[np.int64], rates: NDArray[np.float64]) -> _Pieces:
    """Returns the pieces of the lines between points."""
    whole, at = _curve(int(times_us[-1]), lambda t: np.interp(t, times_us / 1e6, rates))
    return np.append(whole, 0), np.append(at, rates[-1])


def _read_csv(path: Path) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Returns times in microseconds and rates of a file; a first line of words is its head."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = [(number, row) for number, row in enumerate(csv.reader(file), 1) if any(c.strip() for c in row)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise GeneratorError(f"The file of rates {path} cannot be read: {error}.") from error
    points: list[tuple[float, float]] = []
    for place, (number, row) in enumerate(lines):
        try:
            at, rate = (float(cell) for cell in row)
        except ValueError:
            if place == 0:
                continue
            at = math.nan
        if not (0 <= at <= 1000 * _DAY_S and 0 <= rate < math.inf):
            raise GeneratorError(f"{path}, line {number}: expected SECONDS,RATE, both from 0.")
        if points and at <= points[-1][0]:
            raise GeneratorError(f"{path}, line {number}: the time {at:g} does not lie behind the one above it.")
        points.append((at, rate))
    if not points:
        raise GeneratorError(f"The file of rates {path} holds no line SECONDS,RATE.")
    times, rates = np.array(points).T
    return np.rint(times * 1e6).astype(np.int64), rates
