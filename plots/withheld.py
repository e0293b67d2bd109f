"""What keeps a run out of comparisons besides its verdict."""

from typing import Any

from plots.metrics import at

__all__ = ["marks"]


def marks(entry: dict[str, Any]) -> list[str]:
    """Returns what keeps a run of any verdict out of comparisons: a late load, a busy machine."""
    found = ["load late"] if entry.get("load") == "late" else []
    if entry.get("machine") == "busy":
        share = at(entry, "cpu_taken", "share")
        found.append("machine busy" + ("" if share is None else f", {share:.0%} of its CPU time taken away"))
    return found
