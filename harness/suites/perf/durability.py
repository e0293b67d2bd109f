"""What durability costs: the same steady load with the changelog off, on, and flushed to disk, interleaved."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from harness.experiment.make import make_experiment
from harness.files import ROOT, write_json
from harness.results.machine import describe_machine
from harness.results.place import new_folder
from harness.suites.perf.interleave import interleave, ratio
from impls.errors import StateError, UsageError

__all__ = ["main"]

_LEVELS = ("none", "process", "host")
_MEASURES = {
    "epoch p50": ("epoch_ms", "steady", "p50"),
    "epoch p99": ("epoch_ms", "steady", "p99"),
    "latency p50": ("latency_ms", "steady", "p50"),
    "latency p99": ("latency_ms", "steady", "p99"),
}


def main(arguments: Sequence[str]) -> int:
    """Prints each level's cost as a ratio to none; returns the exit code, 2 for bad input."""
    parser = argparse.ArgumentParser(prog="durability", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workload", choices=["dense", "hash"], default="dense")
    parser.add_argument("--keys", default="4M")
    parser.add_argument("--rate", default="10000")
    parser.add_argument("--duration", type=float, default=30.0, help="seconds of measured load")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", help="folder for results; the same folder again goes on where it was cut off")
    options = parser.parse_args(arguments)
    try:
        folder = Path(options.output) if options.output else new_folder(ROOT / "results", "durability")
        plain = make_experiment(
            mechanism="none", name="durability", workload=options.workload, keys=options.keys, rate=options.rate,
            duration_s=options.duration, migration="none",
        )  # fmt: skip
        entries = interleave({x: replace(plain, durability=x) for x in _LEVELS}, options.rounds, folder)
        table = {
            f"{level} / none": {name: ratio(entries[level], entries["none"], *path) for name, path in _MEASURES.items()}
            for level in _LEVELS[1:]
        }
    except (UsageError, StateError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    values = {pair: {name: found.values for name, found in row.items()} for pair, row in table.items()}
    write_json(folder / "durability.json", {"environment": describe_machine(plain.seed), "ratios": values})
    for pair, row in table.items():
        for name, found in row.items():
            sys.stdout.write(f"{pair}  {name}  {found}\n")
    sys.stdout.write(json.dumps({"result": str(folder)}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
