"""`./inv simulate-scale`: options in, tables out."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Column, Table

from harness.options import ending, parse_list
from harness.options.declared import read_given
from harness.report.terminal import terminal
from harness.suites.options import SCALE
from harness.suites.scale.calibrate import calibrate, read_runs
from harness.suites.scale.network import DEFAULT_COSTS, Costs, read_costs, write_costs
from harness.suites.scale.scenario import Compared, Scenario, at_scale, compare, errors_of, make_scenario, predict_all
from harness.suites.scale.simulate import Prediction
from plots.metrics import plain

_LEFT_OUT = (
    "Left out: {}, hosts that differ, stragglers and lost tasks, garbage collection, snapshots of state to the "
    "checkpoint, and Spark's own scheduling beyond a fixed time per task."
)
_NO_HOSTS = "the network between workers beyond --bandwidth"
_HOSTS = "what else is sent on the hosts' network, such as records and results"
_MIB = 1 << 20


@ending()
def run_simulate_scale(options: Mapping[str, Any]) -> int:
    """Simulates, checks or calibrates; returns the exit code."""
    values = {name: value for name, value in options.items() if value not in {None, ""}}
    path = Path(values.pop("costs", DEFAULT_COSTS))
    if "calibrate" in values:
        _calibrate(str(values["calibrate"]), path)
    elif "check" in values:
        _check(Path(str(values["check"])), read_costs(path))
    else:
        _simulate(values, read_costs(path))
    return 0


def _simulate(given: dict[str, Any], costs: Costs) -> None:
    scenario, began = make_scenario(given), time.perf_counter()
    values = read_given(SCALE, given)
    setting = scenario.setting(at_scale(costs, values.get("bandwidth")))
    outcomes = list(predict_all(setting, scenario.mechanisms, values.get("jobs")))
    console = terminal()
    found = [one for one, _ in outcomes if one is not None]
    console.print(prediction_table(found, _title(scenario), hosts=bool(scenario.hosts)))
    for _, why in outcomes:
        if why:
            console.print(why)
    console.print(f"{len(outcomes)} mechanisms simulated in {time.perf_counter() - began:.1f} s. {_origin(costs)}")
    console.print(_LEFT_OUT.format(_HOSTS if scenario.hosts else _NO_HOSTS))


def prediction_table(predictions: Sequence[Prediction], title: str, *, hosts: bool = False) -> Table:
    """Returns the predictions as a table, sorted by peak; the control's is its highest steady latency.

    With `hosts` it says how much was pulled from other hosts' workers.
    """
    crossed = ("between hosts MiB",) if hosts else ()
    figures = (
        "steady p50 ms", "peak ms", "p99 ms", "duration s", "calm after s", "epochs", "moved bins", "moved MiB",
        *crossed, "copied MiB", "planning s",
    )  # fmt: skip
    table = _table(title, ("mechanism",), figures)
    for p in sorted(predictions, key=lambda p: p.peak_ms or p.steady_max_ms):
        table.add_row(
            p.mechanism, f"{p.steady_p50_ms:,.0f}", f"{p.peak_ms or p.steady_max_ms:,.0f}", plain(p.migrating_p99_ms),
            plain(p.duration_s, 1), plain(p.calm_s, 1), f"{p.epochs:,}", f"{p.moved_bins:,}",
            f"{p.moved_bytes / _MIB:,.0f}", *(f"{p.crossed_bytes / _MIB:,.0f}" for _ in crossed),
            f"{(p.copied_bytes + p.standing_bytes) / _MIB:,.0f}", f"{p.planning_s:.1f}",
        )  # fmt: skip
    return table


def _table(title: str, names: Sequence[str], figures: Sequence[str]) -> Table:
    columns = [*(Column(name, no_wrap=True) for name in names), *(Column(name, justify="right") for name in figures)]
    return Table(*columns, title=title, title_justify="left")


def _check(folder: Path, costs: Costs) -> None:
    rows = compare(folder, costs)
    console = terminal()
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
    before = read_costs(path if path.exists() else DEFAULT_COSTS)
    costs = calibrate(read_runs(map(Path, parse_list(folders)), "take costs from"), before)
    write_costs(costs, path)
    terminal().print(f"{path}: {_origin(costs)}")


def _title(scenario: Scenario) -> str:
    to = "" if scenario.workers == scenario.workers_goal else f" to {scenario.workers_goal:,}"
    return (
        f"Predicted: {scenario.workers:,}{to} workers{_network_text(scenario)}, {scenario.bins:,} bins, "
        f"{scenario.state_bytes / 1e9:,.1f} GB, {scenario.rate:,} records/s, {scenario.distribution}"
    )


def _network_text(scenario: Scenario) -> str:
    if not scenario.hosts:
        return ""
    speed = f" with {scenario.net_mbps:,.0f} Mbit/s" if scenario.net_mbps else ""
    delay = f" and {scenario.net_delay_ms:g} ms of delay" if scenario.net_delay_ms else ""
    return f" on {scenario.hosts:,} hosts{speed}{delay if speed else delay.replace(' and', ' with')}"


def _origin(costs: Costs) -> str:
    """Returns where the costs come from, and which of them were not measured."""
    names: dict[str, list[str]] = {}
    for name, text in sorted(costs.source.items()):
        if name:
            names.setdefault(text, []).append(name)
    single = [f"{', '.join(of)} {text}" for text, of in names.items()]
    return f"Costs {costs.source.get('', 'of unknown origin')}" + (f"; {'; '.join(single)}." if single else ".")
