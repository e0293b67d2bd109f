"""A policy that rescales the simulated query: the pure parts of `impls.driver.autoscaling`, an epoch for a second."""

from dataclasses import replace
from random import Random
from typing import Any

from chaos.parameters import Parameters
from chaos.violation import require
from impls.autoscale.intervals import Gathering, Look, Sample
from impls.autoscale.loop import Autoscaler, AutoscaleSettings
from impls.driver.autoscaling import past_of
from impls.driver.epochs import EpochRecord

_MOST = 6
_INTERVAL_S, _COOLDOWN_S = 2.0, 8.0
_COST_S = 0.02  # useful time of a record
_SOURCE = ("in", 0)


class Scaling:
    """after() every epoch; restarted() when another driver begins, which knows the log of decisions alone.

    Attributes:
        given: rescales decided so far.
    """

    def __init__(self, parameters: Parameters):
        self._policy = parameters.autoscale
        self._random = Random(parameters.seed + 17)
        self._log: list[dict[str, Any]] = []
        self._consumed, self._waits, self._due = 0, 0, 0.0
        self.given = 0
        if self._policy:
            self.restarted()

    def restarted(self) -> None:
        """Begins anew with what the log holds."""
        if not self._policy:
            return
        settings = AutoscaleSettings(
            self._policy, least=1, most=_MOST, interval_s=_INTERVAL_S, cooldown_s=_COOLDOWN_S, warmup=1
        )
        self._loop, self._gathering = Autoscaler(settings, past_of(self._log)), Gathering(0.99)

    def after(self, record: EpochRecord, epoch: int, *, migrating: bool) -> int | None:
        """Takes in a finished epoch and returns how many workers are asked for, None for no change."""
        if not self._policy:
            return None
        self._add(record, epoch)
        if migrating:
            self._gathering.give_up()
            return None
        if (first := self._gathering.first) is not None:
            self._gathering.begin(first, self._look(epoch))
            self._due = epoch + _INTERVAL_S
            return None
        last = self._gathering.last
        return None if last is None or epoch < self._due else self._decided(last, epoch)

    def _add(self, record: EpochRecord, epoch: int) -> None:
        applied = tuple(report.records for report in record.reports)
        self._consumed += sum(applied)
        sample = Sample.of(record.written, record.reports, (), {_SOURCE: self._consumed}, end_s=float(epoch))
        # by the records alone: a seed is one run
        self._gathering.add(replace(sample, applied=applied, useful_s=tuple(n * _COST_S for n in applied)))

    def _look(self, epoch: int) -> Look:
        """Returns how far a source goes whose rate the seed draws anew now and then."""
        if self._random.random() < 0.4:
            self._waits = self._random.choice((0, 0, 20, 200, 2_000))
        return Look(float(epoch), {_SOURCE: self._consumed + self._waits})

    def _decided(self, last: Sample, epoch: int) -> int | None:
        if self._gathering.disturbed:
            self._loop.moved()
        interval = self._gathering.close(last, self._look(epoch))
        self._gathering.disturbed = False
        self._due = epoch + _INTERVAL_S
        decided = self._loop.decide(interval)
        self._log.append({"policy": self._policy, **decided.to_json()})
        if decided.wanted is not None:
            self._check(decided.at_s, decided.wanted)
            self.given += 1
        return decided.wanted

    def _check(self, at_s: float, wanted: int) -> None:
        """Requires bounds and cool-down, whichever driver decided what was before."""
        require(1 <= wanted <= _MOST, "autoscale", f"{wanted} workers are asked for, of 1 to {_MOST}")
        before = [entry["at_s"] for entry in self._log[:-1] if entry["wanted"] is not None]
        since = at_s - before[-1] if before else _COOLDOWN_S
        require(since >= _COOLDOWN_S, "autoscale", f"{wanted} workers are asked for {since:g} s after the last rescale")
