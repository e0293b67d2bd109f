"""`./inv perf`: every part of the performance suite in one result, gone on with where it was cut off."""

import hashlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.files import ROOT, read_json, write_json
from harness.options import parse_names
from harness.options.ending import ending
from harness.results.entry import ENTRY_FILE
from harness.results.place import result_folder
from harness.setup.jars import ensure_jars
from harness.setup.java import use_java
from harness.suites.perf import growth, migratable, moving, phases, steady
from harness.suites.perf.part import Part, Scale
from harness.suites.perf.report import write_reference, write_tables
from impls.errors import UsageError

__all__ = ["PARTS", "RESULT_FILE", "PerfSuite", "measured", "run_perf", "suite_from"]

RESULT_FILE = "perf.json"

PARTS: tuple[Part, ...] = (
    steady.STEADY, steady.RATE, phases.PART, moving.RESTART, migratable.PART, moving.MOVED, growth.PART,
)  # fmt: skip


@dataclass(frozen=True)
class PerfSuite:
    """The parts to measure, and how large."""

    parts: tuple[str, ...]
    quick: bool = False

    def digest(self) -> str:
        """Returns a short digest of all parameters."""
        return hashlib.sha256(f"perf {','.join(self.parts)} {self.quick}".encode()).hexdigest()[:12]

    def to_json(self) -> dict[str, Any]:
        """Returns all parameters."""
        return {"name": "perf", "parts": list(self.parts), "quick": self.quick, "seed": 1}

    @property
    def chosen(self) -> list[Part]:
        """The parts in their order."""
        return [part for part in PARTS if part.name in self.parts]


def suite_from(options: Mapping[str, Any]) -> PerfSuite:
    """Returns what `part` (all by default) and `quick` ask for; raises UsageError for an unknown part."""
    known = [part.name for part in PARTS]
    named = parse_names(str(options.get("part") or ""), known, "part")
    return PerfSuite(tuple(name for name in known if not named or name in named), bool(options.get("quick")))


def _reference(suite: PerfSuite) -> Path:
    if suite.quick or len(suite.parts) < len(PARTS):
        raise UsageError("A reference needs the whole suite in full: leave out --part and --quick.")
    return ROOT / "results" / "reference"


def measured(suite: PerfSuite, output: Path, *, force: bool = False) -> Path:
    """Measures what is missing of a suite and returns its folder; perf.json and perf.md are written after every part.

    Raises:
        UsageError, GeneratorError, StateError: Java is missing, the folder cannot be made, or a measurement fails.
    """
    use_java()
    ensure_jars()
    folder = result_folder(suite, output, force=force)
    for number, part in enumerate(suite.chosen, 1):
        path = folder / part.name / "findings.json"
        if not path.exists():
            sys.stderr.write(f"part {number} of {len(suite.chosen)}: {part.title}, about {part.minutes:g} min\n")
            findings = part.measure(folder / part.name, Scale(suite.quick))
            write_json(path, {"title": part.title, **findings.to_json(), "busy": _busy(folder / part.name)})
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
    found = {part.name: read_json(folder / part.name / "findings.json") for part in suite.chosen}
    return {"environment": read_json(folder / "experiment.json")["environment"], "quick": suite.quick,
            "parts": {name: data for name, data in found.items() if data}}  # fmt: skip


@ending("cut off; the same options again go on")
def run_perf(options: Mapping[str, Any]) -> int:
    """Measures the parts asked for; returns the exit code: 0 all bounds kept, 1 not all, 2 bad input, 130 cut off.

    The quick form shows that the suite works: bounds that it does not keep are printed, and no failure.
    """
    suite = suite_from(options)
    reference = _reference(suite) if options.get("reference") else None
    output = Path(options.get("output") or ROOT / "results")
    folder = measured(suite, output, force=bool(options.get("force")))
    if reference is not None:
        write_reference(folder, reference)
    return _print_checks(folder, list(read_json(folder / RESULT_FILE)["parts"].values()), quick=suite.quick)


def _print_checks(folder: Path, parts: Sequence[Mapping[str, Any]], *, quick: bool) -> int:
    checks = [check for part in parts for check in part["checks"]]
    sys.stdout.write((folder / "perf.md").read_text() + "\n")
    sys.stdout.write(f"{folder}\n")
    return 0 if quick else int(not all(check["holds"] for check in checks))
