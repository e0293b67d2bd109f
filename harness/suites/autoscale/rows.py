"""The table of the suite: a row per run, with its verdict, its score and what the simulator predicts of it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from harness.experiment.parameters import MICRO_BATCH
from harness.files import read_json, read_lines
from harness.measure.cells import read_epochs
from harness.measure.scores import Changed, Score, oscillations, rescales_of, right_after, steps_of, worker_seconds
from harness.suites.autoscale.suite import AutoscaleCase, AutoscaleSuite, needed_of
from harness.suites.scale.autoscaled import AutoscaledSetting, SimulatedOutcome, predict_autoscaled
from harness.suites.scale.network import Costs
from harness.suites.scale.scenario import at_scale
from impls.autoscale.loop import AutoscaleSettings
from impls.errors import UsageError

_SLICE_S = 0.25
_ENTRY_BYTES = 8


def rows_of(suite: AutoscaleSuite, cell: AutoscaleCase, folder: Path, costs: Costs) -> list[dict[str, Any]]:
    """Returns a row per run of a cell's result; times in seconds since the load's begin."""
    rows = []
    for entry in read_json(folder / "result.json")["runs"]:
        run = folder / entry["folder"]
        mechanism = str(read_json(run / "run.json").get("mechanism", entry["mechanism"])).partition(",")[0]
        score, steps = _scored(suite, cell, entry, run)
        outcome = _predicted(suite, cell, mechanism, costs)
        rows.append({
            "load": cell.load.name,
            "policy": cell.policy,
            "mechanism": mechanism,
            "mode": suite.mode,
            "round": entry["round"],
            "verdict": entry["verdict"],
            "reasons": entry.get("reasons", []),
            "machine": entry.get("machine"),
            "workers": [[round(step.at_s, 3), step.workers] for step in steps],
            "score": None if score is None else score.to_json(),
            "predicted": None if outcome is None else outcome.score.to_json(),
        })  # fmt: skip
    return rows


def _scored(
    suite: AutoscaleSuite, cell: AutoscaleCase, entry: Mapping[str, Any], run: Path
) -> tuple[Score | None, list[Changed]]:
    """Returns the score of a run and its numbers of workers; no score of a run that did not end."""
    load = read_json(run / "load.json")
    if "timeline" not in entry or not load:
        return None, []
    start_us, lead_s, end_s = load["start_us"], float(load["lead_in_s"]), float(load["planned_s"])
    epochs = read_epochs(run / "epochs.jsonl")
    told = [one for one in read_lines(run / "events.jsonl") if one["at_us"] <= start_us + end_s * 1e6]
    rescales = rescales_of(told)
    above = [row for row in entry["timeline"] if lead_s <= row["at_s"] < end_s and row["p99"] > suite.objective_ms]
    steps, right, taken = steps_of(epochs, start_us), None, None
    if cell.load.step_s is not None:
        at_s = lead_s + cell.load.step_s
        each = suite.utilisation * _true_rate(told, start_us + at_s * 1e6) or suite.unit
        needed = needed_of(cell.experiment.schedule(), each, suite.most)
        right = right_after(steps, needed, at_s, end_s)
        behind = [(one["at_us"] - start_us) / 1e6 - at_s for one in rescales]
        taken = None if right is None else sum(0 <= at <= right for at in behind)
    spent = worker_seconds(epochs, start_us, lead_s, end_s)
    score = Score(len(above) * _SLICE_S, spent, len(rescales), oscillations(rescales), right, taken)
    return score, steps


def _true_rate(events: Sequence[Mapping[str, Any]], since_us: float) -> float:
    """Returns the median records/s of useful time that decisions behind a time were told, 0 where there are none.

    A record costs more than what it waits, and how much more depends on the machine.
    """
    numbers = (one.get("numbers", {}) for one in events if one["kind"] == "autoscale" and one["at_us"] >= since_us)
    rates = [found["true_rate"] for found in numbers if "true_rate" in found]
    return float(np.median(rates)) if rates else 0.0


def _predicted(suite: AutoscaleSuite, cell: AutoscaleCase, mechanism: str, costs: Costs) -> SimulatedOutcome | None:
    """Returns the simulator's prediction of a run; None in real time, and where skew or an overload forbids one."""
    if suite.mode != MICRO_BATCH or not is_simulated(cell):
        return None
    try:
        return predicted(suite, cell, mechanism, costs)
    except UsageError:
        return None


def is_simulated(cell: AutoscaleCase) -> bool:
    """Returns whether the simulator knows a cell's load: its keys are as good as uniform over the bins."""
    return cell.experiment.distribution == "uniform"


def predicted(
    suite: AutoscaleSuite, cell: AutoscaleCase, mechanism: str, costs: Costs, scale: int = 1
) -> SimulatedOutcome:
    """Returns the simulator's prediction of a cell, for `scale` times as many workers, records and bins.

    Raises:
        UsageError: epochs grow without end.
    """
    experiment = cell.experiment
    schedule = cell.load.schedule(suite.unit * scale, experiment.lead_in_s)
    bins, most = 1 << (experiment.bins * scale - 1).bit_length(), suite.most * scale
    end_s, limit = experiment.lead_in_s + experiment.duration_s, experiment.max_offsets_per_trigger
    autoscale = experiment.autoscale
    step_s = None if cell.load.step_s is None else experiment.lead_in_s + cell.load.step_s
    setting = AutoscaledSetting(
        schedule=schedule,
        shares=np.full(bins, 1 / bins),
        sizes=np.full(bins, max(experiment.keys * _ENTRY_BYTES * scale // bins, 1), np.int64),
        workers=experiment.workers * scale,
        autoscale=None if autoscale is None else _scaled(autoscale, scale),
        needed=needed_of(schedule, suite.unit, most),
        costs=_waiting(costs, suite.cost_us),
        lead_s=experiment.lead_in_s,
        end_s=end_s,
        objective_ms=suite.objective_ms,
        step_s=step_s,
        placement=experiment.policy,
        options=dict(experiment.options),
        seed=suite.seed,
        limit=None if limit is None else limit * scale,
    )
    return predict_autoscaled(mechanism, setting)


def _scaled(autoscale: AutoscaleSettings, scale: int) -> AutoscaleSettings:
    return replace(autoscale, least=autoscale.least, most=autoscale.most * scale)


def _waiting(costs: Costs, cost_us: float) -> Costs:
    """Returns costs of records that wait, which takes no core."""
    return replace(at_scale(costs), record_us=costs.record_us + cost_us)
