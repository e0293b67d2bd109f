"""What the rows say of the suite's questions, in sentences: steps, calm, and live migration against restart."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from statistics import median
from typing import Any

__all__ = ["findings"]

_RESTART = "restart"
_STEP_RESCALES = 3

Row = Mapping[str, Any]


def findings(rows: Sequence[Row]) -> list[str]:
    """Returns sentences about each load and policy, of the runs that were valid (or predicted) only."""
    found = [row for row in rows if row.get("score") and row["verdict"] in {"valid", "predicted"}]
    out: list[str] = []
    for (load, policy), group in groupby(found, key=lambda row: (row["load"], row["policy"])):
        several = list(group)
        if load in {"step", "surge"}:
            out += _steps(load, policy, several)
        if load == "steady":
            out += _calm(policy, several)
        out += _against_restart(load, policy, several)
    return out


def _by_mechanism(rows: Sequence[Row]) -> dict[str, list[Mapping[str, float | None]]]:
    out: dict[str, list[Mapping[str, float | None]]] = {}
    for row in rows:
        out.setdefault(row["mechanism"], []).append(row["score"])
    return out


def _steps(load: str, policy: str, rows: Sequence[Row]) -> Iterator[str]:
    for mechanism, scores in _by_mechanism(rows).items():
        if mechanism == "none":
            continue
        taken = [score["rescales_to_right"] for score in scores]
        right = sum(number is not None and number <= _STEP_RESCALES for number in taken)
        yield f"{load}, {policy}, {mechanism}: right within {_STEP_RESCALES} rescales in {right} of {len(scores)} runs."


def _calm(policy: str, rows: Sequence[Row]) -> Iterator[str]:
    for mechanism, scores in _by_mechanism(rows).items():
        if mechanism != "none":
            turned, rescales = (sum(score[name] or 0 for score in scores) for name in ("oscillations", "rescales"))
            told = f"{turned:g} oscillations and {rescales:g} rescales in {len(scores)} runs"
            yield f"steady, {policy}, {mechanism}: {told}."


def _against_restart(load: str, policy: str, rows: Sequence[Row]) -> Iterator[str]:
    """Compares medians over rounds; a restart that was never above the objective cannot be divided by."""
    scores = _by_mechanism(rows)
    stops = {name: found for name, found in scores.items() if _RESTART in name}
    for name, found in scores.items():
        for stop, others in stops.items() if name not in stops else ():
            above, worker = ({n: median(s[k] or 0.0 for s in of) for n, of in ((name, found), (stop, others))}
                             for k in ("above_s", "worker_s"))  # fmt: skip
            if above[stop] and worker[stop]:
                yield (
                    f"{load}, {policy}: {name} was above the objective for {above[name]:.1f} s, {stop} for "
                    f"{above[stop]:.1f} s ({above[name] / above[stop]:.2f} times), at "
                    f"{worker[name] / worker[stop]:.2f} times the worker-seconds."
                )
