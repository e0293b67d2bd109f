"""The measures of a run for a comparison of revisions: percentiles from its merged histograms, and counts."""

from pathlib import Path

from harness.files import read_json, read_lines
from impls.errors import StateError
from plots.metrics import at, by_name

__all__ = ["measures_of", "was_busy"]

_PATHS = {
    "epoch_p50_ms": ("epoch_ms", "steady", "p50"),
    "epoch_p99_ms": ("epoch_ms", "steady", "p99"),
    "steady_p50_ms": ("latency_ms", "steady", "p50"),
    "steady_p99_ms": ("latency_ms", "steady", "p99"),
    "migrating_p99_ms": ("latency_ms", "migrating", "p99"),
}


def was_busy(folder: Path) -> bool:
    """Returns whether the machine was busy during a run of a result; a revision that does not tell has none."""
    return any(entry.get("machine") == "busy" for entry in read_json(folder / "result.json").get("runs", []))


def measures_of(folder: Path) -> dict[str, dict[str, float]]:
    """Returns the measures of each mechanism of a result of `./inv bench` with one round.

    Raises:
        StateError: a run is not valid; then nothing is compared.
    """
    out = {}
    for entry in read_json(folder / "result.json").get("runs", []):
        if entry["verdict"] != "valid":
            raise StateError(f"A run in {folder} is {entry['verdict']}: {'; '.join(entry['reasons'])}")
        times = {name: float(value) for name, path in _PATHS.items() if (value := at(entry, *path))}
        plans = read_lines(folder / entry["folder"] / "plan.jsonl")
        moved = {name: by_name(name).value(entry) for name in ("moved_bins", "moved_bytes")}
        counts = {
            **({} if entry["generator"].get("extended_s") else {"records": float(entry["generator"]["records"])}),
            **{name: float(value) for name, value in moved.items() if value is not None},
            "pulls": float(sum(len(plan["pulls"]) for plan in plans)),
        }
        out[entry["mechanism"]] = {**times, **counts}
    return out
