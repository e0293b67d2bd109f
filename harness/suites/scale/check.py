"""The predictions against a result: for every run what was measured, what is predicted, and the error."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from harness.experiment.description import Experiment
from harness.experiment.schedules import plan_for
from harness.results.validate import validate
from harness.suites.scale.costs import Costs
from harness.suites.scale.scenario import shares_of
from harness.suites.scale.simulate import Prediction, Setting, predict
from impls.errors import UsageError
from impls.placement import initial

__all__ = ["FIGURES", "Compared", "compare", "median_error"]

FIGURES = ("steady_p50_ms", "peak_ms", "duration_s")
_KEY_BYTES = 8


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
    result = validate(folder)
    experiment = Experiment.from_json({k: v for k, v in result["experiment"].items() if k != "digest"})
    runs = [entry for entry in result["runs"] if entry["verdict"] == "valid" and " with " not in entry["mechanism"]]
    if not runs:
        raise UsageError(f"{folder} has no valid run to check predictions against.")
    setting = _setting_of(experiment, _bin_bytes(runs, experiment), costs, int(result["environment"]["cores"]))

    @cache
    def predicted(mechanism: str) -> Prediction:
        return predict(mechanism, setting)

    return [row for entry in runs for row in _rows(entry, predicted(entry["mechanism"]))]


def median_error(rows: Sequence[Compared], figure: str) -> float | None:
    """Returns the median size of the error of a figure over the runs whose load was met, None if there are none."""
    errors = [abs(row.error) for row in rows if row.figure == figure and row.load == "met"]
    return float(np.median(errors)) if errors else None


def _setting_of(experiment: Experiment, bin_bytes: int, costs: Costs, cores: int) -> Setting:
    """Returns the first migration of an experiment as a setting; raises UsageError where it has none to simulate."""
    if experiment.rate_shape != "constant":
        raise UsageError("The simulator knows constant rates only: check it with another result.")
    bins = experiment.bins
    start = initial(bins, experiment.workers, experiment.policy)
    shares = shares_of(experiment.distribution, bins, experiment.keys, experiment.exponent, experiment.seed)
    sizes = np.full(bins, bin_bytes, np.int64)
    steps = plan_for(experiment)
    goal = steps[0].goal(start, shares * experiment.rate, sizes) if steps else start
    own = replace(costs, slots=cores, record_us=costs.record_us + experiment.cost_us)
    return Setting(start, goal, sizes, shares, float(experiment.rate), own, dict(experiment.options), experiment.seed)


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
