"""`./inv autoscale`: options in, experiments or simulations, and a table, a JSON result and figures out."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

from harness.files import RESULTS, read_json, write_json, write_text
from harness.options import ending
from harness.report.terminal import table_lines, terminal, terminal_table
from harness.suites.autoscale.rows import is_simulated, predicted, rows_of
from harness.suites.autoscale.suite import FIXED, AutoscaleCase, AutoscaleSuite, suite_from
from harness.suites.bench import measure_in_turn
from harness.suites.scale.network import read_costs
from impls.errors import UsageError
from plots.engines import write_autoscale_figures
from plots.metrics import plain

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


RESULT_FILE = "autoscale.json"
_NAMES = ("load", "policy", "mechanism", "verdict")
# heading of a column -> name in a score, digits
_FIGURES = {
    "above s": ("above_s", 1),
    "worker-s": ("worker_s", 0),
    "rescales": ("rescales", 0),
    "oscillations": ("oscillations", 0),
    "right after s": ("right_s", 1),
    "in rescales": ("rescales_to_right", 0),
}
_PREDICTED = {"predicted above s": ("above_s", 1), "predicted worker-s": ("worker_s", 0)}
COLUMNS = (*_NAMES, *_FIGURES, *_PREDICTED)


def texts(row: Mapping[str, Any]) -> list[str]:
    """Returns a row's cells."""
    scores = [(row.get("score"), _FIGURES), (row.get("predicted"), _PREDICTED)]
    numbers = [plain((score or {}).get(name), digits) for score, shown in scores for name, digits in shown.values()]
    return [*(str(row[name]) for name in _NAMES), *numbers]


def measured(suite: AutoscaleSuite, output: Path, *, force: bool = False) -> tuple[Path, int]:
    """Runs what is missing of a suite and writes its tables, see `harness.suites.bench.measure_in_turn`."""
    cells, rows = suite.cells(), list[dict[str, Any]]()

    def take(folder: Path, number: int, path: Path) -> None:
        rows.extend(rows_of(suite, cells[number], path, read_costs()))
        _write(suite, folder, rows)

    return measure_in_turn(suite, [cell.experiment for cell in cells], output, take, force=force)


def _write(suite: AutoscaleSuite, folder: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Writes the result so far: JSON, Markdown and figures."""
    here = read_json(folder / "experiment.json")["environment"]
    loads = {load.name: suite.needs(load) for load in suite.loads()}
    result = {"environment": here, "suite": suite.to_json(), "loads": loads, "rows": rows, "findings": findings(rows)}
    write_json(folder / RESULT_FILE, result)
    told = "\n".join(f"- {sentence}" for sentence in result["findings"])
    lines = table_lines(COLUMNS, map(texts, rows), "llllr")
    write_text(folder / "autoscale.md", "\n".join([*lines, "", told]) + "\n")
    write_autoscale_figures(result, folder / "figures")


def _simulated(suite: AutoscaleSuite, workers: int) -> list[dict[str, Any]]:
    """Returns rows of predictions for as many times the suite's size as there are workers; one that fails says why."""
    scale, costs, rows = max(1, workers // suite.most), read_costs(), []
    for cell in (cell for cell in suite.cells() if is_simulated(cell)):
        names = ("none",) if cell.policy in FIXED else suite.mechanism
        rows += [_simulate(suite, cell, mechanism, costs, scale) for mechanism in names]
    return rows


def _simulate(suite: AutoscaleSuite, cell: AutoscaleCase, mechanism: str, costs: Any, scale: int) -> dict[str, Any]:
    row = {"load": cell.load.name, "policy": cell.policy, "mechanism": mechanism, "verdict": "predicted"}
    try:
        return {**row, "score": predicted(suite, cell, mechanism, costs, scale).score.to_json()}
    except UsageError as error:
        return {**row, "verdict": str(error)}


def _show(rows: Sequence[Row], sentences: Sequence[str]) -> None:
    console = terminal()
    console.print(terminal_table(COLUMNS, map(texts, rows), _NAMES))
    for sentence in sentences:
        console.print(sentence)


@ending("cut off; the same options again go on")
def run_autoscale(options: Mapping[str, Any]) -> int:
    """Measures or simulates, prints the table and the result's path, and returns the exit code as `./inv bench`."""
    suite = suite_from(options)
    if (workers := options.get("simulate")) is not None:
        rows = _simulated(suite.in_batches(), int(workers))
        _show(rows, findings(rows))
        return 0
    output = Path(options.get("output") or RESULTS)
    folder, code = measured(suite, output, force=bool(options.get("force")))
    result = read_json(folder / RESULT_FILE)
    _show(result["rows"], result["findings"])
    sys.stdout.write(f"{folder}\n")
    return code
