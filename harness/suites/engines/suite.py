"""What `./inv compare-engines` runs and prints: an experiment for each number of keys, a row for each rescale."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from harness.experiment.description import Experiment
from harness.experiment.make import make_experiment
from harness.experiment.parameters import PARAMETERS
from harness.files import RESULTS, read_json
from harness.options import CUT_OFF, ending, parse_list, parse_number
from harness.options.declared import read_given
from harness.results.place import Described, result_folder
from harness.run.runs import check_machine
from harness.setup.jars import ensure_jars
from harness.suites.engines.figures import row_of, timeline_of
from harness.suites.engines.page import NAMES
from harness.suites.engines.said import CANNOT
from harness.suites.engines.written import COLUMNS, RESULT_FILE, texts, write_reference, write_result
from harness.suites.options import ENGINES_QUICK
from harness.suites.several import in_turn
from impls.errors import UsageError
from plots.data import load

__all__ = ["EnginesSuite", "measured", "run_compare_engines", "suite_from"]

_NATIVE = "native-real-time"  # whose processes are one, which a fault would end
_MECHANISMS = (
    "megaphone-batched", _NATIVE, "flink-adaptive", "flink-savepoint",
    "kafka-streams-classic", "kafka-streams-instance",
)  # fmt: skip
_KEYS = "1M,4M,10M"
_GIVEN = ("option", "rate", "duration", "bins", "rounds", "seed", "batch", "fault")
_WIDE = 190


@dataclass(frozen=True)
class EnginesSuite(Described):
    """One experiment for each number of keys; the same engines and rescales in all."""

    experiments: tuple[Experiment, ...]

    def to_json(self) -> dict[str, Any]:
        """Returns all parameters."""
        return {"name": "engines", "experiments": [experiment.to_json() for experiment in self.experiments]}


def suite_from(options: Mapping[str, Any]) -> EnginesSuite:
    """Returns what the options ask for; raises UsageError for bad ones."""
    quick = ENGINES_QUICK if options.get("quick") else {}
    shared: dict[str, Any] = {"duration_s": 60.0, "lead_in_s": 5.0, "rate": 10_000, "rounds": 1, **quick}
    shared |= read_given(PARAMETERS, {name: options.get(name) or None for name in _GIVEN})
    usual = ",".join(name for name in _MECHANISMS if name != _NATIVE or not options.get("fault"))
    shared |= {"mechanism": options.get("mechanism") or usual, "workers": options.get("workers") or "2:4"}
    keys = [
        parse_number(text, "The number of keys")
        for text in parse_list(str(options.get("keys") or quick.get("keys", _KEYS)))
    ]
    return EnginesSuite(tuple(_experiment(number, shared) for number in keys))


def _experiment(keys: int, shared: Mapping[str, Any]) -> Experiment:
    fixed = {"workload": "hash", "mode": "real-time", "migration": "there-and-back", "name": "engines"}
    return make_experiment(**{**shared, "keys": keys, **fixed})


def measured(suite: EnginesSuite, output: Path, *, force: bool = False) -> tuple[Path, int]:
    """Runs what is missing of a suite, writes its table, and returns its folder and the worst exit code.

    Raises:
        UsageError: the machine lacks something, or the folder cannot be made.
    """
    for experiment in suite.experiments:
        check_machine(experiment, output)
    ensure_jars()
    folder, worst = result_folder(suite, output, force=force), 0
    rows, lines = list[dict[str, Any]](), list[dict[str, Any]]()
    for path, code in in_turn(suite.experiments, folder):
        worst, result = max(worst, code), read_json(path / "result.json")
        keys = int(result["experiment"]["keys"])
        rows += [row for entry in result["runs"] for row in row_of(keys, entry, path / entry["folder"])]
        lines += [timeline_of(keys, run) for run in load(path).comparable()]
        write_result(folder, rows, lines)
    if worst != CUT_OFF:
        (folder / "done").touch()
    return folder, worst


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    columns = [Column(name, overflow="fold", justify="left" if name in NAMES[1:] else "right") for name in COLUMNS]
    out = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        out.add_row(*texts(row))
    return out


@ending("cut off; the same options again go on")
def run_compare_engines(options: Mapping[str, Any]) -> int:
    """Runs the comparison, prints its table and the result's path, and returns the exit code as `./inv bench`."""
    suite, output = suite_from(options), Path(options.get("output") or RESULTS)
    reference = bool(options.get("reference"))
    if reference and options.get("quick"):
        raise UsageError("A reference needs the comparison in full: leave out --quick.")
    folder, code = measured(suite, output, force=bool(options.get("force")))
    if reference and code == 0:
        write_reference(folder)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else _WIDE)
    result = read_json(folder / RESULT_FILE)
    console.print(_table(result["rows"]))
    for sentence in [*result["conclusions"], CANNOT]:
        console.print(sentence)
    sys.stdout.write(f"{folder}\n")
    return code
