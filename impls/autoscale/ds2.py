"""DS2: the workers that the offered rate needs by what a worker can do, in one step (Kalavri et al., OSDI 2018)."""

import math
from statistics import median

from impls.autoscale import Decision, Interval, Measured
from impls.autoscale.loop import check_range


def decide(
    measured: Measured,
    *,
    utilisation: float = 0.8,
    catch_up_s: float = 30.0,
    activation: int = 1,
    tolerance: float = 0.1,
) -> Decision:
    """Returns the workers that the offered rate needs, when that is out of the tolerance around those there are.

    With the true rate of a worker, records per second of useful time (section 3.2), a query needs
    offered rate / (true rate * utilisation) workers (section 3.3, one operator). So that a backlog is gone within
    `catch_up_s` it needs (offered rate + backlog / catch_up_s) / true rate; workers that catch up are busy all the
    time. More of the two counts. Of the last `activation` intervals the median counts (section 4.2.1).

    With errors of measurement within the tolerance, and a steady load, no rescale in is followed by one out: a rescale
    out happens only below the need n, and one in leaves at least n / (1 - tolerance) as measured, which is n or more.

    Args:
        measured: what was measured.
        utilisation: share of a worker's time that is to be useful, above 0 to 1.
        catch_up_s: seconds in which a backlog is to be gone, above 0.
        activation: intervals of one number of workers before anything is decided, at least 1.
        tolerance: a need up to this share above the workers there are changes nothing, 0 to below 1.
    """
    check_range("utilisation", utilisation, 0, 1, low_open=True)
    check_range("catch_up_s", catch_up_s, 0, math.inf, low_open=True, high_open=True)
    check_range("activation", activation, 1, 1000)
    check_range("tolerance", tolerance, 0, 1, high_open=True)
    recent, workers = measured.current[-activation:], measured.workers
    if len(recent) < activation:
        return Decision(None, f"{len(recent)} of {activation} intervals have been measured with {workers} workers.")
    needs = [need for one in recent if (need := _need(one, utilisation, catch_up_s)) is not None]
    if not needs:
        return Decision(None, "No record was applied, so that nothing is known of what a worker can do.")
    need = median(needs)
    return _decision(measured, need, tolerance)


def _need(interval: Interval, utilisation: float, catch_up_s: float) -> float | None:
    """Returns the workers needed, as a real number; None where it cannot be told."""
    rate = interval.true_rate
    if rate is None:
        return None if interval.offered_rate or interval.backlog else 0.0
    caught_up = interval.offered_rate + interval.backlog / catch_up_s
    return max(interval.offered_rate / utilisation, caught_up) / rate


def _decision(measured: Measured, need: float, tolerance: float) -> Decision:
    last, workers, wanted = measured.last, measured.workers, None
    fewest = max(1, _rounded_up(need / (1 - tolerance)))
    if need > workers * (1 + tolerance):
        wanted = _rounded_up(need)
    elif fewest < workers:
        wanted = fewest
    rate = last.true_rate or 0.0
    told = (
        f"{last.offered_rate:,.0f} records/s and a backlog of {last.backlog:,.0f}, at {rate:,.0f} records per second "
        f"of useful time, need {need:.2f} workers"
    )
    kept = f"which is within the tolerance of the {workers} there are" if wanted is None else f"there are {workers}"
    return Decision(wanted, f"{told}; {kept}.", {"need": round(need, 3)})


def _rounded_up(need: float) -> int:
    return math.ceil(need - 1e-9)  # 4.000000000001 workers are 4
