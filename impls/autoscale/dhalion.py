"""Dhalion: symptom, diagnosis, one resolution, by back-pressure (Floratou et al., PVLDB 10(12) 2017)."""

import math

from impls.autoscale import Decision, Interval, Measured
from impls.autoscale.loop import check_range

_SAME = 0.1  # rates within this share are the same load


def decide(
    measured: Measured, *, backlog_s: float = 5.0, calm_s: float = 60.0, scale_in: float = 0.8, skew: float = 2.0
) -> Decision:
    """Returns the resolution of the symptoms that the last intervals show.

    Heron's back-pressure is here a backlog beyond `backlog_s` seconds of the offered rate that grows. Its diagnosis is
    too few workers, unless one has far more to do than the others. The resolution multiplies the workers by 1 + the
    time in back-pressure over the time without (section 5.2), which Dhalion takes for the share of the load that was
    not handled: here that share itself is known. No backlog at all for `calm_s` seconds is diagnosed as too many
    workers, and resolved by the factor `scale_in`, down by one at least. A resolution that was followed by its
    opposite under the same load is not tried again (section 4, the blacklist).

    Args:
        measured: what was measured.
        backlog_s: seconds of the offered rate, above 0.
        calm_s: seconds, from 0.
        scale_in: above 0 to below 1.
        skew: useful time of the busiest worker over the mean, at which more workers would not help, from 1.
    """
    check_range("backlog_s", backlog_s, 0, math.inf, low_open=True, high_open=True)
    check_range("calm_s", calm_s, 0, math.inf, high_open=True)
    check_range("scale_in", scale_in, 0, 1, low_open=True, high_open=True)
    check_range("skew", skew, 1, math.inf)
    last = measured.last
    if _backlog_s(last) > backlog_s:
        return _under_pressure(measured, skew)
    calm = [one for one in measured.current if one.end_s > last.end_s - calm_s]
    long_enough = measured.current[0].begin_s <= last.end_s - calm_s if measured.current else False
    if not long_enough or any(_backlog_s(one) > backlog_s for one in calm):
        return Decision(None, "There is no symptom, and not yet for long enough to have too many workers.")
    wanted = min(math.floor(measured.workers * scale_in), measured.workers - 1)
    if wanted < 1:
        return Decision(None, "There is no symptom, and one worker.")
    if _was_wrong(measured, wanted):
        return Decision(None, f"There is no symptom; {wanted} workers were too few under this load before.")
    return Decision(wanted, f"There was no backlog for {calm_s:g} s: {measured.workers} workers are too many.")


def _backlog_s(interval: Interval) -> float:
    """Returns the backlog in seconds of the offered rate, or of the processed one where nothing is offered."""
    rate = interval.offered_rate or interval.processed_rate
    return interval.backlog / rate if rate else math.inf if interval.backlog else 0.0


def _under_pressure(measured: Measured, skew: float) -> Decision:
    last, workers = measured.last, measured.workers
    told = f"A backlog of {last.backlog:,.0f} records is {_backlog_s(last):.1f} s of the load"
    if last.backlog <= last.backlog_before:
        return Decision(None, f"{told}, and {workers} workers work it off.")
    if workers > 1 and last.skew >= skew:
        return Decision(None, f"{told}; one worker has {last.skew:.1f} times the mean to do: rebalance the bins.")
    factor = last.offered_rate / last.processed_rate if last.processed_rate else math.inf
    if not math.isfinite(factor):  # nothing was processed, or next to nothing
        factor = 2.0
    wanted = max(workers + 1, math.ceil(workers * factor - 1e-9))
    return Decision(wanted, f"{told} and grows: {factor:.2f} times {workers} workers.", {"factor": round(factor, 3)})


def _was_wrong(measured: Measured, wanted: int) -> bool:
    """Returns whether the query was scaled up from as few workers before, under a load that was no higher."""
    rate = measured.last.offered_rate * (1 + _SAME)
    steps = zip(measured.past, measured.past[1:], strict=False)
    return any(
        first.after < first.before and then.after > then.before and first.after >= wanted and then.offered_rate <= rate
        for first, then in steps
    )
