"""`./inv reproduce`: every table and figure from scratch, step by step; what is done already is not done again."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from harness.files import RESULTS
from harness.options import CUT_OFF
from harness.report.report import redraw
from harness.suites.bench import run_bench
from harness.suites.claims.claims import read_claims
from harness.suites.claims.verify import run_claims
from harness.suites.nexmark import run_nexmark
from harness.suites.perf.suite import run_perf
from harness.suites.sweep import PRESETS, run_sweep


@dataclass(frozen=True)
class ReproduceStep:
    """One part: its title, about how long it takes, and the function that runs it and returns an exit code."""

    title: str
    minutes: float
    run: Callable[[], int]


def steps(output: Path, *, quick: bool) -> list[ReproduceStep]:
    """Returns the steps in order, each with its results in `output`."""
    where = str(output)
    if quick:
        return [
            ReproduceStep("mechanisms on key-count", 1.5, partial(run_bench, {"quick": True, "output": where})),
            ReproduceStep("number of bins", 3, partial(run_sweep, {"preset": "bins", "quick": True, "output": where})),
            ReproduceStep("NEXMark", 4, partial(run_nexmark, {"query": "q3,q4,q8", "quick": True, "output": where})),
            ReproduceStep("performance", 6, partial(run_perf, {"quick": True, "output": where})),
            ReproduceStep("placement", 0, partial(run_claims, only="contiguous-ranges-move-most")),
        ]
    return [
        *(ReproduceStep(f"sweep {x}", 25, partial(run_sweep, {"preset": x, "output": where})) for x in PRESETS),
        ReproduceStep("NEXMark", 25, partial(run_nexmark, {"output": where})),
        ReproduceStep(
            "claims, with `./inv bench`, performance and NEXMark's large state",
            _claimed_minutes(),
            partial(run_claims, output=where),
        ),
    ]


def _claimed_minutes() -> float:
    return sum({claim.source.name: claim.source.minutes for claim in read_claims()}.values())


def reproduce(output: Path | None = None, *, quick: bool = False) -> int:
    """Runs all steps and returns the worst exit code; returns 130 as soon as one was cut off."""
    folder = output or RESULTS
    todo = steps(folder, quick=quick)
    begun = time.monotonic()
    codes = []
    for number, step in enumerate(todo, 1):
        left = sum(later.minutes for later in todo[number - 1 :])
        sys.stderr.write(f"{number} of {len(todo)}: {step.title}; about {left:.0f} min for the rest\n")
        codes.append(step.run())
        if codes[-1] == CUT_OFF:
            return CUT_OFF
    sys.stdout.write(f"{len(todo)} steps in {(time.monotonic() - begun) / 60:.0f} min; results in {folder}\n")
    for step, code in zip(todo, codes, strict=True):
        sys.stdout.write(f"{'done' if code == 0 else f'exit code {code}'}: {step.title}\n")
    return max(codes)


def figures(output: Path | None = None) -> int:
    """Draws the figures and reports of all stored results again and returns the worst exit code."""
    folder = output or RESULTS
    folders = sorted({path.parent for path in folder.glob("**/result.json")})
    if not folders:
        sys.stderr.write(f"There is no result in {folder}: ./inv reproduce makes them.\n")
        return 2
    return max(redraw(str(path)) for path in folders)
