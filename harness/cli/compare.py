"""`./inv compare`: one page of finished experiments."""

import sys
from pathlib import Path

from harness.files import ROOT
from harness.options import parse_list
from harness.report.across import find_experiments, write_comparison
from impls.errors import UsageError

__all__ = ["compare"]


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
