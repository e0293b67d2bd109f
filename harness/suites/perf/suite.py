"""`./inv perf`: every part of the performance suite in one result and a page, gone on with where it was cut off."""

import importlib
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.files import RESULTS, ROOT, read_json, write_json, write_text
from harness.options import ending, parse_names
from harness.report.terminal import table_lines
from harness.results.entry import ENTRY_FILE
from harness.results.place import Described, result_folder
from harness.setup.java import ensure_jars, use_java
from harness.suites.perf import part_names
from harness.suites.perf.part import Part, Scale
from impls.errors import UsageError
from plots.perf import write_figures

RESULT_FILE = "perf.json"
_FIGURES = "figures"


@dataclass(frozen=True)
class PerfSuite(Described):
    """The parts to measure, and how large."""

    parts: tuple[str, ...]
    quick: bool = False

    def to_json(self) -> dict[str, Any]:
        """Returns all parameters."""
        return {"name": "perf", "parts": list(self.parts), "quick": self.quick, "seed": 1}

    @property
    def chosen(self) -> dict[str, Part]:
        """The parts by name."""
        return {name: importlib.import_module(f"{__package__}.{name}").PART for name in self.parts}


def suite_from(options: Mapping[str, Any]) -> PerfSuite:
    """Returns what `part` (all by default) and `quick` ask for; raises UsageError for an unknown part."""
    known = part_names()
    named = parse_names(str(options.get("part") or ""), known, "part")
    return PerfSuite(tuple(name for name in known if not named or name in named), bool(options.get("quick")))


def measured(suite: PerfSuite, output: Path, *, force: bool = False) -> Path:
    """Measures what is missing of a suite and returns its folder; perf.json and perf.md are written after every part.

    Raises:
        UsageError, GeneratorError, StateError: Java is missing, the folder cannot be made, or a measurement fails.
    """
    use_java()
    ensure_jars()
    folder = result_folder(suite, output, force=force)
    for number, (name, part) in enumerate(suite.chosen.items(), 1):
        path = folder / name / "findings.json"
        if not path.exists():
            sys.stderr.write(f"part {number} of {len(suite.chosen)}: {part.title}, about {part.minutes:g} min\n")
            path.parent.mkdir(exist_ok=True)
            findings = part.measure(path.parent, Scale(suite.quick))
            write_json(path, {"title": part.title, **findings.to_json(), "busy": _busy(path.parent)})
        result = _collected(suite, folder)
        write_json(folder / RESULT_FILE, result)
        write_tables(folder, result)
    (folder / "done").touch()
    return folder


def _busy(folder: Path) -> list[str]:
    """Returns the runs of a part that stay in it although the machine was busy."""
    entries = sorted(folder.rglob(ENTRY_FILE))
    return [path.parent.name for path in entries if read_json(path).get("machine") == "busy"]


def _collected(suite: PerfSuite, folder: Path) -> dict[str, Any]:
    found = {name: read_json(folder / name / "findings.json") for name in suite.parts}
    return {"environment": read_json(folder / "experiment.json")["environment"], "quick": suite.quick,
            "parts": {name: data for name, data in found.items() if data}}  # fmt: skip


@ending("cut off; the same options again go on")
def run_perf(options: Mapping[str, Any]) -> int:
    """Measures the parts asked for; returns the exit code: 0 all bounds kept, 1 not all, 2 bad input, 130 cut off.

    The quick form shows that the suite works: bounds that it does not keep are printed, and no failure.
    """
    suite, reference = suite_from(options), bool(options.get("reference"))
    if reference and suite.quick:
        raise UsageError("A reference needs a measurement in full: leave out --quick.")
    folder = measured(suite, Path(options.get("output") or RESULTS), force=bool(options.get("force")))
    if reference:
        write_reference(read_json(folder / RESULT_FILE), ROOT / "results" / "reference")
    sys.stdout.write(f"{(folder / 'perf.md').read_text()}\n{folder}\n")
    checks = [check for part in read_json(folder / RESULT_FILE)["parts"].values() for check in part["checks"]]
    return 0 if suite.quick else int(not all(check["holds"] for check in checks))


def markdown(result: Mapping[str, Any], figures: Mapping[str, Sequence[str]] | None = None) -> str:
    """Returns the result as a page: what was measured where, the bounds, and every part's tables and figures.

    Args:
        result: as perf.json holds it.
        figures: paths of the figures of each part, relative to the page.
    """
    return "\n".join(_lines(result, figures or {})) + "\n"


def _lines(result: Mapping[str, Any], figures: Mapping[str, Sequence[str]]) -> Iterator[str]:
    yield "# Performance\n"
    size = "The quick form: it shows that the suite works, its figures mean little. " if result["quick"] else ""
    yield f"{size}{_measured_where(result['environment'])}\n"
    checks = [
        (*_check(check), part.get("environment", result["environment"])["commit"][:12])
        for part in result["parts"].values()
        for check in part["checks"]
    ]
    if checks:
        yield from table_lines(("bound", "measured", "kept", "at commit"), checks, "lrll")
        yield ""
    for name, part in result["parts"].items():
        yield f"## {part['title']}\n"
        if own := part.get("environment"):
            yield f"{_measured_where(own)}\n"
        if busy := part.get("busy"):
            yield (
                f"**The machine was busy during {', '.join(busy)}**: other work took more than 10 % of the CPU time, "
                "also when the round was run anew. Measure again on a quiet machine.\n"
            )
        for table in part["tables"]:
            yield from _table(table)
        for figure in figures.get(name, ()):
            yield f"![{part['title']}]({figure})\n"


def _measured_where(here: Mapping[str, Any]) -> str:
    versions, state = here.get("versions", {}), " with uncommitted changes" if here["dirty"] else ""
    known = ", ".join(f"{name} {versions[name]}" for name in ("python", "java", "pyspark") if name in versions)
    return f"Measured at commit {here['commit'][:12]}{state}, {here.get('cores', '?')} cores, {known}."


def _check(check: Mapping[str, Any]) -> Sequence[str]:
    sign, kept = "at most" if check["at_most"] else "at least", "yes" if check["holds"] else "**no**"
    edge = "" if check.get("edge") is None else f" ({'up' if check['at_most'] else 'down'} to {check['edge']:,.3g})"
    if check.get("unbounded"):
        edge = " (without end)"
    value = "–" if check["value"] is None else f"{check['value']:,.3g}"  # noqa: RUF001 - as in all tables
    return f"{check['sentence']}: {sign} {check['bound']:g}", f"{value}{edge}", kept


def _table(table: Mapping[str, Any]) -> Iterator[str]:
    yield f"**{table['title']}**" + (f" ({table['note']})" if table["note"] else "") + "\n"
    yield from table_lines(table["columns"], table["rows"], "lr")
    yield ""


def write_tables(folder: Path, result: Mapping[str, Any], page: str = "perf.md") -> None:
    """Writes the page and the figures of a result folder."""
    figures = write_figures(result, folder / _FIGURES)
    names = {part: [f"{_FIGURES}/{path.name}" for path in paths] for part, paths in figures.items()}
    write_text(folder / page, markdown(result, names))


def joined(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the parts of two results, those of `now` where both have one; each part names where it was measured."""
    found = {
        name: {"environment": result["environment"], **part}
        for result in (before, now) for name, part in result["parts"].items()
    }  # fmt: skip
    return {**now, "parts": {name: found[name] for name in part_names() if name in found}}


def write_reference(result: dict[str, Any], reference: Path) -> None:
    """Stores a result among the small results that go with the project; parts that it does not have stay as they are.

    The whole suite takes two hours, so a part may be measured anew alone.
    """
    result["environment"].pop("host", None)  # it says nothing to others
    path = reference / RESULT_FILE
    stored = joined(read_json(path), result) if path.exists() else result
    reference.mkdir(parents=True, exist_ok=True)
    write_json(path, stored)
    shutil.rmtree(reference / _FIGURES, ignore_errors=True)
    write_tables(reference, stored, "README.md")
    for picture in (reference / _FIGURES).glob("*.png"):
        picture.unlink()  # the page shows the SVG
