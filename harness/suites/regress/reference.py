"""The stored comparison, `results/reference/regress.json`: the commit that later ones are compared with."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.files import ROOT, read_json, write_json
from impls.errors import UsageError

__all__ = ["base_of", "store"]

_STORED = ROOT / "results" / "reference" / "regress.json"


def base_of(stored: Path = _STORED) -> str:
    """Returns the base of the stored comparison; raises UsageError where none is stored, as outside a clone."""
    commit = read_json(stored).get("base")
    if commit is None:
        raise UsageError(f"{stored} names no revision to compare with: name one with --base.")
    return str(commit)


def store(
    commits: Mapping[str, str],
    bench: list[str],
    found: Mapping[str, Any],
    machine: Mapping[str, Any],
    stored: Path = _STORED,
) -> None:
    """Writes a comparison as the stored one.

    Args:
        commits: base and head.
        bench: the options that both ran with.
        found: findings and second by mechanism, as `harness.suites.regress.decide.compare` gives them.
        machine: what it was measured on, see `harness.results.machine`.
        stored: the file.
    """
    ratios = {
        mechanism: {
            change.measure: {"base": round(change.base, 2), "head_over_base": str(change.ratio)} for change in changes
        }
        for mechanism, changes in {**found["findings"], **found["second"]}.items()
    }
    write_json(stored, {**commits, "bench": bench, "ratios": ratios, "machine": dict(machine)})
