"""The edge of the command line: options in, sentences and exit codes out."""

import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from generators.errors import GeneratorError
from harness.experiment.description import QUICK, STANDARD, Experiment, make_experiment, parse_number
from harness.experiment.space import check_space
from harness.files import ROOT
from harness.lab.broker import open_broker
from harness.live.state import LiveState
from harness.options import CUT_OFF, parse_list
from harness.report.across import find_experiments, write_comparison
from harness.report.comparison import comparison_table
from harness.report.report import write_report
from harness.results.summary import write_result
from harness.setup.jars import ensure_jars
from harness.setup.java import use_java
from harness.suites.bench import bench
from impls import catalog
from impls.errors import UsageError
from plots.data import load
from plots.figures import write_all

__all__ = [
    "check_machine",
    "compare",
    "experiment_from",
    "experiments_from",
    "list_mechanisms",
    "mechanism_options",
    "print_comparison",
    "redraw",
    "run_bench",
    "typed",
]

_WIDE = 160  # columns of a log file
_RENAMED = {"duration": "duration_s", "bootstrap_servers": "bootstrap"}
_CHOICES = ("mechanism", "all", "workload", "query", "profile", "fault", "value_bytes", "cost_us")
_NUMBERS: dict[str, Callable[[str], Any]] = {
    "duration_s": float, "exponent": float, "cost_us": float, "value_bytes": int,
    "seed": int, "max_offsets_per_trigger": int
}  # fmt: skip


def typed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Reads the options that are numbers; raises UsageError that names the option."""
    out = dict(values)
    for name, kind in _NUMBERS.items():
        if out.get(name) is not None:
            try:
                out[name] = kind(out[name])
            except ValueError:
                option = name.removesuffix("_s").replace("_", "-")
                raise UsageError(f"--{option} takes a number, not {out[name]!r}.") from None
    return out


def experiment_from(options: Mapping[str, Any]) -> Experiment:
    """Returns the experiment that the options of `./inv bench` describe; raises UsageError for bad ones.

    Without a choice of what to compare it is the standard comparison, which has Spark's own restart in it.
    """
    named = {_RENAMED.get(name, name): value for name, value in options.items() if value is not None}
    values = typed(
        {k: v for k, v in named.items() if k not in {"quick", "all", "output", "force", "resume", "metrics_port"}}
    )
    if options.get("all"):
        values["mechanism"] = ",".join(catalog.names())
    taken = mechanism_options(str(values.pop("option", "")))
    standard = {} if any(options.get(name) for name in _CHOICES) else STANDARD
    defaults = QUICK if options.get("quick") else standard
    return make_experiment(**{**defaults, **values, **({"options": taken} if taken else {})})


def experiments_from(options: Mapping[str, Any]) -> list[Experiment]:
    """Returns an experiment for each query named, or the one that has none; raises UsageError for bad options."""
    queries = parse_list(str(options.get("query") or ""))
    return [experiment_from({**options, "query": query}) for query in queries] or [experiment_from(options)]


def mechanism_options(text: str) -> dict[str, Any]:
    """Reads NAME=VALUE,NAME=VALUE into the mechanisms' options; raises UsageError for an unknown name or bad value."""
    kinds = {option: type(value) for name in catalog.every() for option, value in catalog.options(name).items()}
    taken: dict[str, Any] = {}
    for part in parse_list(text):
        name, _, value = part.partition("=")
        name = name.strip().replace("-", "_")
        if name not in kinds:
            raise UsageError(f"No mechanism has the option {name!r}: use one of {', '.join(sorted(kinds))}.")
        try:
            whole = kinds[name] is int and value.strip() != "0"
            taken[name] = parse_number(value, name) if whole else kinds[name](value)
        except ValueError:
            raise UsageError(f"The option {name} takes a {kinds[name].__name__}, not {value!r}.") from None
    return taken


def check_machine(experiment: Experiment, output: Path) -> None:
    """Raises UsageError when Java, disk space, a folder or the broker named is not there."""
    use_java()
    for folder in (output, *([Path(experiment.state_dir)] if experiment.state_dir else [])):
        check_space(folder, experiment)
    if experiment.bootstrap is not None:
        open_broker(experiment.bootstrap, output, (), Path()).stop()


def run_bench(options: Mapping[str, Any]) -> int:
    """Runs an experiment, prints the path of its result as the last line and returns the exit code."""
    try:
        experiments = experiments_from(options)
        state = LiveState()
        with _serving(options.get("metrics_port"), state):
            return _carry_out(experiments, options, state)
    except (UsageError, GeneratorError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except KeyboardInterrupt:
        return CUT_OFF


def _serving(port: Any, state: LiveState) -> AbstractContextManager[Any]:
    if port is None:
        return nullcontext()
    from harness.live.endpoint import serving

    return serving(str(port), state)


def _carry_out(experiments: list[Experiment], options: Mapping[str, Any], state: LiveState) -> int:
    """Runs the experiments one after another and returns the worst exit code; raises UsageError for bad input."""
    output = Path(options.get("output") or ROOT / "results")
    for experiment in experiments:
        check_machine(experiment, output)
    ensure_jars()
    codes = []
    given = {name: bool(options.get(name)) for name in ("force", "resume")}
    for experiment in experiments:
        folder, code = bench(experiment, output, **given, state=state)
        print_comparison(folder)
        sys.stdout.write(f"{folder}\n")
        codes.append(code)
        if code == CUT_OFF:
            break
    return max(codes)


def print_comparison(folder: Path) -> None:
    """Prints the comparison table of a result folder."""
    Console(highlight=False, width=None if sys.stdout.isatty() else _WIDE).print(comparison_table(load(folder)))


def redraw(folder: str) -> int:
    """Writes result.json, figures and report of a result folder anew; returns the exit code."""
    path = Path(folder)
    if not (path / "experiment.json").exists():
        sys.stderr.write(f"{folder} is not a result folder: it has no experiment.json.\n")
        return 2
    write_result(path)
    write_all(path)
    sys.stdout.write(f"{write_report(path, drawn=True)}\n")
    return 0


def compare(folders: str, output: str) -> int:
    """Writes the page that compares experiments, prints its path as the last line and returns the exit code.

    Args:
        folders: result folders or folders of such, separated by commas; results/ where none is named.
        output: the page; compare.html in results/ where none is named.
    """
    named = [Path(name) for name in parse_list(folders)] or [ROOT / "results"]
    try:
        found = find_experiments(named)
        page = write_comparison(found, Path(output or ROOT / "results" / "compare.html"))
    except (UsageError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    for sentence in found.skipped:
        sys.stderr.write(f"{sentence}\n")
    sys.stdout.write(f"{page}\n")
    return 0


def list_mechanisms() -> None:
    """Prints the mechanisms with their options and first words."""
    table = Table(box=None)
    for title in ("mechanism", "options", "what it does"):
        table.add_column(title)
    for name in catalog.names():
        kind = type(catalog.make(name))
        options = ", ".join(f"{option}={value}" for option, value in catalog.options(name).items())
        table.add_row(name, options or "-", (kind.__doc__ or "").strip().splitlines()[0])
    Console().print(table)
