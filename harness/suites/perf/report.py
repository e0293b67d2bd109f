"""Writes the performance suite's tables as Markdown, beside its figures."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.files import read_json, write_json, write_text
from harness.report.markdown import table_lines
from plots.perf import write_figures

__all__ = ["markdown", "write_reference", "write_tables"]

_FIGURES = "figures"


def markdown(result: Mapping[str, Any], figures: Mapping[str, Sequence[str]] | None = None) -> str:
    """Returns the result as a page: what was measured where, the bounds, and every part's tables and figures.

    Args:
        result: as perf.json holds it.
        figures: paths of the figures of each part, relative to the page.
    """
    return "\n".join(_lines(result, figures or {})) + "\n"


def _lines(result: Mapping[str, Any], figures: Mapping[str, Sequence[str]]) -> Iterator[str]:
    here = result["environment"]
    yield "# Performance\n"
    state = " with uncommitted changes" if here["dirty"] else ""
    size = "The quick form: it shows that the suite works, its figures mean little. " if result["quick"] else ""
    yield f"{size}Measured at commit {here['commit'][:12]}{state}, {_machine(here)}.\n"
    checks = [check for part in result["parts"].values() for check in part["checks"]]
    if checks:
        yield from table_lines(("bound", "measured", "kept"), (_check(check) for check in checks), "lrl")
        yield ""
    for name, part in result["parts"].items():
        yield f"## {part['title']}\n"
        if busy := part.get("busy"):
            yield (
                f"**The machine was busy during {', '.join(busy)}**: other work took more than 10 % of the CPU time, "
                "also when the round was run anew. Measure again on a quiet machine.\n"
            )
        for table in part["tables"]:
            yield from _table(table)
        for figure in figures.get(name, ()):
            yield f"![{part['title']}]({figure})\n"


def _machine(here: Mapping[str, Any]) -> str:
    versions = here.get("versions", {})
    known = ", ".join(f"{name} {versions[name]}" for name in ("python", "java", "pyspark") if name in versions)
    return f"{here.get('cores', '?')} cores, {known}"


def _check(check: Mapping[str, Any]) -> Sequence[str]:
    sign, kept = "at most" if check["at_most"] else "at least", "yes" if check["holds"] else "**no**"
    return f"{check['sentence']}: {sign} {check['bound']:g}", f"{check['value']:,.3g}", kept


def _table(table: Mapping[str, Any]) -> Iterator[str]:
    yield f"**{table['title']}**" + (f" ({table['note']})" if table["note"] else "") + "\n"
    yield from table_lines(table["columns"], table["rows"], "lr")
    yield ""


def write_tables(folder: Path, result: Mapping[str, Any]) -> None:
    """Writes perf.md and the figures of a result folder."""
    figures = write_figures(result, folder / _FIGURES)
    names = {part: [f"{_FIGURES}/{path.name}" for path in paths] for part, paths in figures.items()}
    write_text(folder / "perf.md", markdown(result, names))


def write_reference(folder: Path, reference: Path) -> None:
    """Copies a result's tables and figures to the small results that go with the project."""
    reference.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(folder / "perf.md", reference / "README.md")
    result = read_json(folder / "perf.json")
    result["environment"].pop("host", None)  # it says nothing to others
    write_json(reference / "perf.json", result)
    shutil.rmtree(reference / _FIGURES, ignore_errors=True)
    shutil.copytree(folder / _FIGURES, reference / _FIGURES, ignore=shutil.ignore_patterns("*.png"))
