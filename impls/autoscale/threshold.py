"""Threshold: keeps the workers' mean utilisation at a target, as the Kubernetes Horizontal Pod Autoscaler does."""

import math
from collections.abc import Sequence

from impls.autoscale import Decision, Interval, Measured
from impls.autoscale.loop import check_range


def decide(
    measured: Measured, *, utilisation: float = 0.8, tolerance: float = 0.1, stabilisation_s: float = 300.0
) -> Decision:
    """Returns ceil(workers * utilisation measured / target), when their ratio is out of the tolerance around 1.

    A rescale in goes to the most that any interval of the last `stabilisation_s` seconds has asked for, and waits until
    so long has been measured. That, and the defaults of tolerance and stabilisation, is what Kubernetes documents
    ("Horizontal Pod Autoscaling", algorithm details). As nobody is busy for more than all of the time, a step of the
    load is met in several steps.

    Args:
        measured: what was measured.
        utilisation: the target, above 0 to 1.
        tolerance: of the ratio of what was measured to the target, 0 to below 1.
        stabilisation_s: seconds of stabilisation, from 0.
    """
    check_range("utilisation", utilisation, 0, 1, low_open=True)
    check_range("tolerance", tolerance, 0, 1, high_open=True)
    check_range("stabilisation_s", stabilisation_s, 0, math.inf, high_open=True)
    last, workers = measured.last, measured.workers
    desired = _desired(last, utilisation, tolerance)
    numbers = {"desired": float(desired)}
    told = f"Workers were of use for {last.utilisation:.0%} of their time, at a target of {utilisation:.0%}"
    if desired >= workers:
        return Decision(desired if desired > workers else None, f"{told}: {desired} are needed.", numbers)
    window = _within(measured.intervals, last.end_s - stabilisation_s)
    if window is None:
        waits = f"less than {stabilisation_s:g} s have been measured"
        return Decision(None, f"{told}: {desired} would do, but {waits}.", numbers)
    most = max(desired, *(_desired(one, utilisation, tolerance) for one in window), 1)
    reason = f"{told}: {most} were needed at most in the last {stabilisation_s:g} s."
    return Decision(most if most < workers else None, reason, {**numbers, "most": float(most)})


def _desired(interval: Interval, target: float, tolerance: float) -> int:
    ratio = interval.utilisation / target
    if abs(ratio - 1) <= tolerance:
        return interval.workers
    return max(1, math.ceil(interval.workers * ratio - 1e-9))


def _within(intervals: Sequence[Interval], since_s: float) -> Sequence[Interval] | None:
    """Returns the intervals that end behind a time; None where what was measured does not reach back so far."""
    if intervals[0].begin_s > since_s:
        return None
    return [one for one in intervals if one.end_s > since_s]
