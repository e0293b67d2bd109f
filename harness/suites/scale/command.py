"""`./inv simulate-scale`: options in, tables out."""

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from harness.options import ending, parse_list
from harness.options.declared import read_given
from harness.suites.options import SCALE
from harness.suites.scale.calibrate import calibrate, read_runs
from harness.suites.scale.costs import DEFAULT_COSTS, Costs, read_costs, write_costs
from harness.suites.scale.scenario import Compared, Scenario, at_scale, compare, errors_of, make_scenario, predict_all
from harness.suites.scale.simulate import Prediction

__all__ = ["prediction_table", "run_simulate_scale"]

_LEFT_OUT = (
    "Left out: the network between workers beyond --bandwidth, hosts that differ, stragglers and lost tasks, garbage "
    "collection, snapshots of state to the checkpoint, and Spark's own scheduling beyond a fixed time per task."
)
_MIB = 1 << 20
_WIDTH = 150


@ending()
def run_simulate_scale(options: Mapping[str, Any]) -> int:
    """Simulates, checks or calibrates; returns the exit code."""
    given = {name: value for name, value in options.items() if value not in {None, ""}}
    path = Path(given.pop("costs", DEFAULT_COSTS))
    if "calibrate" in given:
        _calibrate(str(given["calibrate"]), path)
    elif "check" in given:
        _check(Path(str(given["check"])), read_costs(path))
    else:
        _simulate(given, read_costs(path))
    return 0


def _simulate(given: dict[str, Any], costs: Costs) -> None:
    scenario, began = make_scenario(given), time.perf_counter()
    values = read_given(SCALE, given)
    setting = scenario.setting(at_scale(costs, values.get("bandwidth")))
    outcomes = list(predict_all(setting, scenario.mechanisms, values.get("jobs")))
    console = _console()
    console.print(prediction_table([found for found, _ in outcomes if found is not None], _title(scenario)))
    for _, why in outcomes:
        if why:
            console.print(why)
    console.print(f"{len(outcomes)} mechanisms simulated in {time.perf_counter() - began:.1f} s. {_origin(costs)}")
    console.print(_LEFT_OUT)


def prediction_table(predictions: Sequence[Prediction], title: str) -> Table:
    """Returns the predictions as a table, sorted by peak; the control's is its highest steady latency."""
    figures = (
        "steady p50 ms", "peak ms", "p99 ms", "duration s", "calm after s", "epochs", "moved bins", "moved MiB",
        "copied MiB", "planning s",
    )  # fmt: skip
    table = _table(title, ("mechanism",), figures)
    for p in sorted(predictions, key=lambda p: p.peak_ms or p.steady_max_ms):
        table.add_row(
            p.mechanism, f"{p.steady_p50_ms:,.0f}", f"{p.peak_ms or p.steady_max_ms:,.0f}", _text(p.migrating_p99_ms),
            _text(p.duration_s, 1), _text(p.calm_s, 1), f"{p.epochs:,}", f"{p.moved_bins:,}",
            f"{p.moved_bytes / _MIB:,.0f}", f"{(p.copied_bytes + p.standing_bytes) / _MIB:,.0f}", f"{p.planning_s:.1f}",
        )  # fmt: skip
    return table


def _table(title: str, names: Sequence[str], figures: Sequence[str]) -> Table:
    columns = [*(Column(name, no_wrap=True) for name in names), *(Column(name, justify="right") for name in figures)]
    return Table(*columns, title=title, title_justify="left")


def _check(folder: Path, costs: Costs) -> None:
    rows = compare(folder, costs)
    console = _console()
    console.print(_check_table(rows, f"{folder.name}: first migration of every valid run"))
    for figure, error in errors_of(rows).items():
        text = "no run whose load was met" if error is None else f"median error {100 * error:.0f} %"
        console.print(f"{figure}: {text}")
    if folder.name in " ".join(costs.source.values()):
        console.print("The costs come from this very result, so that the error is that of the model alone.")
    console.print(_origin(costs))


def _check_table(rows: Sequence[Compared], title: str) -> Table:
    """Returns measured and predicted figures as a table, run by run."""
    table = _table(title, ("run", "load", "figure"), ("measured", "predicted", "error %"))
    for row in rows:
        digits = 2 if row.figure.endswith("_s") else 0
        numbers = (f"{value:,.{digits}f}" for value in (row.measured, row.predicted))
        table.add_row(row.run, row.load, row.figure, *numbers, f"{100 * row.error:+.0f}")
    return table


def _calibrate(folders: str, path: Path) -> None:
    runs = read_runs(map(Path, parse_list(folders)), "take costs from")
    costs = calibrate(runs, read_costs(path if path.exists() else DEFAULT_COSTS))
    write_costs(costs, path)
    _console().print(f"{path}: {_origin(costs)}")


def _title(scenario: Scenario) -> str:
    to = "" if scenario.workers == scenario.workers_goal else f" to {scenario.workers_goal:,}"
    return (
        f"Predicted: {scenario.workers:,}{to} workers, {scenario.bins:,} bins, {scenario.state_bytes / 1e9:,.1f} GB, "
        f"{scenario.rate:,} records/s, {scenario.distribution}"
    )


def _origin(costs: Costs) -> str:
    """Returns where the costs come from, and which of them were not measured."""
    single = [f"{name} {text}" for name, text in sorted(costs.source.items()) if name]
    return f"Costs {costs.source.get('', 'of unknown origin')}" + (f"; {'; '.join(single)}." if single else ".")


def _text(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else _WIDTH)
