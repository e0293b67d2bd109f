"""`./inv autoscale`: options in, experiments or simulations, and a table, a JSON result and figures out."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from harness.files import RESULTS, read_json, write_json, write_text
from harness.options import CUT_OFF, ending
from harness.report.markdown import table_lines
from harness.results.place import result_folder
from harness.run.runs import check_machine
from harness.setup.jars import ensure_jars
from harness.suites.autoscale.findings import findings
from harness.suites.autoscale.rows import is_simulated, predicted, rows_of
from harness.suites.autoscale.suite import FIXED, AutoscaleSuite, Cell, suite_from
from harness.suites.scale.costs import read_costs
from harness.suites.several import in_turn
from impls.errors import UsageError
from plots.autoscale import write_figures
from plots.metrics import DASH

__all__ = ["COLUMNS", "RESULT_FILE", "measured", "run_autoscale", "texts"]

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
_WIDE = 160


def texts(row: Mapping[str, Any]) -> list[str]:
    """Returns a row's cells."""
    scores = [(row.get("score"), _FIGURES), (row.get("predicted"), _PREDICTED)]
    numbers = [_text(score, name, digits) for score, shown in scores for name, digits in shown.values()]
    return [*(str(row[name]) for name in _NAMES), *numbers]


def _text(score: Mapping[str, Any] | None, name: str, digits: int) -> str:
    value = None if score is None else score.get(name)
    return DASH if value is None else f"{value:,.{digits}f}"


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    columns = [Column(name, overflow="fold", justify="left" if name in _NAMES else "right") for name in COLUMNS]
    out = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        out.add_row(*texts(row))
    return out


def measured(suite: AutoscaleSuite, output: Path, *, force: bool = False) -> tuple[Path, int]:
    """Runs what is missing of a suite and returns its folder and the worst exit code; what is done is kept.

    Raises:
        UsageError: the machine lacks something, or the folder cannot be made.
    """
    cells = suite.cells()
    for cell in cells:
        check_machine(cell.experiment, output)
    ensure_jars()
    folder, rows, worst = result_folder(suite, output, force=force), list[dict[str, Any]](), 0
    for cell, (path, code) in zip(cells, in_turn([cell.experiment for cell in cells], folder), strict=False):
        worst = max(worst, code)
        rows += rows_of(suite, cell, path, read_costs())
        _write(suite, folder, rows)
        if code == CUT_OFF:
            return folder, worst
    (folder / "done").touch()
    return folder, worst


def _write(suite: AutoscaleSuite, folder: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Writes the result so far: JSON, Markdown and figures."""
    here = read_json(folder / "experiment.json")["environment"]
    loads = {load.name: suite.needs(load) for load in suite.loads()}
    result = {"environment": here, "suite": suite.to_json(), "loads": loads, "rows": rows, "findings": findings(rows)}
    write_json(folder / RESULT_FILE, result)
    told = "\n".join(f"- {sentence}" for sentence in result["findings"])
    lines = table_lines(COLUMNS, map(texts, rows), "llllr")
    write_text(folder / "autoscale.md", "\n".join([*lines, "", told]) + "\n")
    write_figures(result, folder / "figures")


def _simulated(suite: AutoscaleSuite, workers: int) -> list[dict[str, Any]]:
    """Returns rows of predictions for as many times the suite's size as there are workers; one that fails says why."""
    scale, costs, rows = max(1, workers // suite.most), read_costs(), []
    for cell in (cell for cell in suite.cells() if is_simulated(cell)):
        names = ("none",) if cell.policy in FIXED else suite.mechanism
        rows += [_simulate(suite, cell, mechanism, costs, scale) for mechanism in names]
    return rows


def _simulate(suite: AutoscaleSuite, cell: Cell, mechanism: str, costs: Any, scale: int) -> dict[str, Any]:
    row = {"load": cell.load.name, "policy": cell.policy, "mechanism": mechanism, "verdict": "predicted"}
    try:
        return {**row, "score": predicted(suite, cell, mechanism, costs, scale).score.to_json()}
    except UsageError as error:
        return {**row, "verdict": str(error)}


@ending("cut off; the same options again go on")
def run_autoscale(options: Mapping[str, Any]) -> int:
    """Measures or simulates, prints the table and the result's path, and returns the exit code as `./inv bench`."""
    suite = suite_from(options)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else _WIDE)
    if (workers := options.get("simulate")) is not None:
        rows = _simulated(suite.in_batches(), int(workers))
        console.print(_table(rows))
        for sentence in findings(rows):
            console.print(sentence)
        return 0
    output = Path(options.get("output") or RESULTS)
    folder, code = measured(suite, output, force=bool(options.get("force")))
    result = read_json(folder / RESULT_FILE)
    console.print(_table(result["rows"]))
    for sentence in result["findings"]:
        console.print(sentence)
    sys.stdout.write(f"{folder}\n")
    return code
