"""`./inv changes`: the experiments of Bartnik et al. (BTW 2019) on a query that runs, each against stop and restart.

Operator migration is a rebalance: a quarter of the bins move. A filter is put in between source and map, and the map's
function is replaced: every bin switches to the new pipeline between two epochs (in real time between two commits of its
owner). The baseline stops the whole query and starts it on the same checkpoint with the new code, or the new
assignment; the Spark session and its JVM stay, and so do the workers' environments on disk. A second baseline ends the
application as well, as whoever replaces code in a Spark program without this runtime has to.
The fourth experiment replaces the operator by one whose state has another shape, while a rescale moves bins.
"""

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jsonschema
from rich.console import Console
from rich.table import Table

from harness.experiment.make import make_experiment
from harness.experiment.parameters import MICRO_BATCH, PARAMETERS
from harness.files import RESULTS, read_json, write_json
from harness.options import ending, parse_names
from harness.options.declared import read_given
from harness.oracle.verdict import merge
from harness.report.terminal import terminal, terminal_table
from harness.results.machine import describe_machine
from harness.results.place import Described, result_folder
from harness.setup.java import ensure_jars, use_java
from harness.suites.changes.cases import APPLICATION, EXPERIMENTS, LIVE, RESTART, ChangeCase, Setting, cases_of
from harness.suites.changes.run import ENTRY_FILE, campaign, faults_of, forget_heavy, run_case
from harness.suites.options import CHANGES_QUICK
from harness.suites.perf.part import Check
from impls import catalog
from impls.errors import UsageError
from plots.engines import write_changes_figure
from plots.metrics import marks, plain

_SCHEMA, _SCHEMA_FILE = 1, Path(__file__).with_name("schema.json")
_FILE = "changes.json"
_PEAK_BOUND, _EXCESS_BOUND = 1.25, 50.0
_DEFAULTS: dict[str, Any] = {
    "workers": (2, 4), "rate": 5_000, "duration_s": 12.0, "lead_in_s": 5.0, "keys": 1_000_000, "bins": 256, "seed": 1,
    "mechanisms": ("megaphone-batched",),
}  # fmt: skip
_AFTER_S = 5.0
_NAMES = ("experiment", "how", "verdict")
# What is shown of a case: heading -> name in its entry, digits.
_FIGURES = {"holds after s": ("held_s", 2), "peak ms": ("peak_ms", 0), "peak ratio": ("peak_ratio", 2),
            "excess ms": ("excess_ms", 0)}  # fmt: skip


@dataclass(frozen=True)
class _Suite(Described):
    setting: Setting
    experiments: tuple[str, ...]
    quick: bool
    faults: int = 0

    @property
    def cases(self) -> list[ChangeCase]:
        """The cases that are measured, none where faults are inflicted."""
        return [] if self.faults else cases_of(self.setting, self.experiments, quick=self.quick)

    def to_json(self) -> dict[str, Any]:
        """Returns all parameters."""
        return {"name": "changes", **asdict(self), "experiments": list(self.experiments)}


def suite_from(options: Mapping[str, Any]) -> _Suite:
    """Returns what the options ask for; raises UsageError for bad ones."""
    experiments = parse_names(str(options.get("experiment") or ""), EXPERIMENTS, "experiment")
    names = ("mechanism", "keys", "rate", "bins", "workers", "duration", "lead_in", "seed")
    given = read_given(PARAMETERS, {name: options.get(name) for name in names})
    faults = int(options.get("faults") or 0)
    values = {**_DEFAULTS, **(CHANGES_QUICK if options.get("quick") or faults else {}), **given}
    mode = str(options.get("mode") or MICRO_BATCH)
    base = make_experiment(workload="hash", modes=(mode,), name="changes", **values)
    if len(base.mechanisms) > 1 or base.mechanisms[0] in {"none", *catalog.baselines()}:
        raise UsageError(
            "Bins of a query that changes move by one mechanism of this runtime: name one that moves them."
        )
    setting = Setting(
        mode, base.keys, base.rate, base.workers, base.workers_goal, base.bins, base.lead_in_s, base.duration_s,
        _AFTER_S, base.seed, base.mechanisms[0],
    )  # fmt: skip
    return _Suite(setting, experiments, bool(options.get("quick")), faults)


def changes(cases: Sequence[ChangeCase], folder: Path, console: Console) -> list[dict[str, Any]]:
    """Runs the cases that are not in the folder yet, with a line for each as it ends, and returns all entries."""
    entries = []
    for number, case in enumerate(cases, 1):
        where = folder / "cases" / case.name
        entry = read_json(where / ENTRY_FILE)
        if not entry:
            shutil.rmtree(where, ignore_errors=True)
            entry = run_case(case, where)
        entries.append(entry)
        why = f": {' '.join(entry['reasons'])}" if entry["reasons"] else ""
        console.print(f"{number}/{len(cases)} {case.experiment} {case.how}: {entry['verdict']}{why}", soft_wrap=True)
    return entries


def inflicted(suite: _Suite, folder: Path, console: Console) -> list[dict[str, Any]]:
    """Inflicts the suite's faults on one query, prints what became of each, and returns the entry."""

    def tell(line: Mapping[str, Any]) -> None:
        held = f"held after {line['held_s']:.1f} s, {line['restarts']} restarts"
        console.print(f"{line['name']} in a change of {line['what']}: {line['said']}, {held}", soft_wrap=True)

    where = folder / "faults"
    entry = read_json(where / ENTRY_FILE)
    if not entry:
        shutil.rmtree(where, ignore_errors=True)
        entry = campaign(suite.setting, faults_of(suite.faults), where, tell)
        write_json(where / ENTRY_FILE, entry)
        if entry["verdict"] == "valid":
            forget_heavy(where)
    console.print(f"{entry['verdict']}: {' '.join(entry['reasons']) or 'every record under one code'}", soft_wrap=True)
    return [entry]


def _table(entries: Sequence[Mapping[str, Any]]) -> Table:
    rows = []
    for entry in entries:
        steady = entry.get("latency_ms", {}).get("steady", {})
        numbers = [(steady.get("p50"), 0), (steady.get("p99"), 0)]
        numbers += [(entry.get(name), digits) for name, digits in _FIGURES.values()]
        told = {**entry, "verdict": ", ".join([entry["verdict"], *marks(dict(entry))])}
        texts = [plain(value, digits) for value, digits in numbers]
        rows.append([*(told[name] for name in _NAMES), *texts])
    return terminal_table((*_NAMES, "steady p50", "p99 ms", *_FIGURES), rows, _NAMES)


def checks_of(entries: Sequence[Mapping[str, Any]]) -> list[Check]:
    """Returns what the three experiments have to show, of those that are valid: peak ratios and excess latencies."""
    by_name = {(entry["experiment"], entry["how"]): entry for entry in entries if entry["verdict"] == "valid"}
    checks = []
    for name in EXPERIMENTS:
        live = by_name.get((name, LIVE))
        if live and live["peak_ratio"] is not None:
            checks.append(Check(f"peak ratio of {name}", live["peak_ratio"], _PEAK_BOUND, at_most=True))
        for how in (RESTART, APPLICATION):
            other = by_name.get((name, how))
            if live and other and live["excess_ms"] and other["excess_ms"] is not None:
                what = f"excess latency of {name}, {how} over {LIVE}"
                checks.append(Check(what, other["excess_ms"] / live["excess_ms"], _EXCESS_BOUND, at_most=False))
    return checks


def report(suite: _Suite, entries: Sequence[Mapping[str, Any]], folder: Path) -> dict[str, Any]:
    """Writes changes.json, which obeys schema.json, and the figure of its valid cases; returns the first."""
    checks = [{**asdict(check), "holds": check.holds} for check in checks_of(entries)]
    about = {"parameters": suite.to_json(), "environment": describe_machine(suite.setting.seed)}
    result = {"schema": _SCHEMA, **about, "cases": list(entries), "checks": checks}
    jsonschema.validate(result, json.loads(_SCHEMA_FILE.read_text(encoding="utf-8")))
    write_json(folder / _FILE, result)
    write_changes_figure(result, folder / "changes.svg")
    return result


@ending("cut off; the same command goes on with what is left")
def run_changes(options: Mapping[str, Any]) -> int:
    """Runs what the options of `./inv changes` ask for, prints its table, and returns the exit code.

    It is 0 when every verdict is valid, 1 otherwise, 2 for bad input and 130 when it was cut off. The last line printed
    is the folder of the result.
    """
    suite, console = suite_from(options), terminal()
    use_java()
    ensure_jars()
    folder = result_folder(suite, Path(options.get("output") or RESULTS), force=bool(options.get("force")))
    entries = inflicted(suite, folder, console) if suite.faults else changes(suite.cases, folder, console)
    result = report(suite, entries, folder)
    (folder / "done").touch()
    console.print(_table(entries))
    for check in checks_of(entries):
        bound = f"at {'most' if check.at_most else 'least'} {check.bound:g}"
        console.print(f"{check.sentence}: {check.value:.2f}, {bound}: {'kept' if check.holds else 'not kept'}")
    sys.stdout.write(f"{folder}\n")
    return int(merge(case["verdict"] for case in result["cases"]) != "valid")
