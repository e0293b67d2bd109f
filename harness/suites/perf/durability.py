"""What durability costs: the same steady load with the changelog off, on, and flushed to disk, interleaved."""

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from harness.experiment.make import make_experiment
from harness.files import RESULTS, write_json
from harness.options import ending
from harness.options.declared import read_words
from harness.results.machine import describe_machine
from harness.results.place import new_folder
from harness.suites.options import DURABILITY
from harness.suites.perf.part import STEADY_MEASURES, interleave, ratio

_LEVELS = ("none", "process", "host")


@ending()
def _main(arguments: Sequence[str]) -> int:
    """Prints each level's cost as a ratio to none; returns the exit code, 2 for bad input."""
    options = read_words(DURABILITY, arguments, __doc__)
    folder = Path(options["output"]) if options["output"] else new_folder(RESULTS, "durability")
    plain = make_experiment(
        mechanism="none", name="durability", workload=options["workload"], keys=options["keys"], rate=options["rate"],
        duration_s=options["duration"], migration="none",
    )  # fmt: skip
    entries = interleave({x: replace(plain, durability=x) for x in _LEVELS}, options["rounds"], folder)
    table = {
        f"{level} / none": {
            name: ratio(entries[level], entries["none"], *path) for name, path in STEADY_MEASURES.items()
        }
        for level in _LEVELS[1:]
    }
    values = {pair: {name: found.values for name, found in row.items()} for pair, row in table.items()}
    write_json(folder / "durability.json", {"environment": describe_machine(plain.seed), "ratios": values})
    for pair, row in table.items():
        for name, found in row.items():
            sys.stdout.write(f"{pair}  {name}  {found}\n")
    sys.stdout.write(json.dumps({"result": str(folder)}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
