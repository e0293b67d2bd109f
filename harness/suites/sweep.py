"""Sweeps: presets of the literature's or a free grid, each mechanism in each cell.

Finished runs are skipped, and a run that was cut off is measured again.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from harness.experiment.description import Experiment
from harness.experiment.make import check, make_experiment
from harness.files import RESULTS
from harness.options import ending, parse_number
from harness.report.comparison import print_comparison
from harness.results.place import Described, find_earlier, new_folder, unchanged
from harness.run.progress import Lines
from harness.run.runs import NamedRun, check_machine
from harness.setup.java import ensure_jars
from harness.suites.bench import prepare_runs, run_and_report
from harness.suites.options import AXES, SWEEP_QUICK
from impls.errors import UsageError

Cell = dict[str, Any]
_THREE = "megaphone-all-at-once,megaphone-fluid,megaphone-batched"
_DEFAULT = "none,megaphone-all-at-once,megaphone-batched"
_RUN_OVERHEAD_S = 14.0  # start, checking and summary of a run, on 2 cores


@dataclass(frozen=True)
class Preset:
    """A sweep of the literature, at the size of one small machine.

    Attributes:
        mirrors: paper and figure.
        x: the axis that figures are drawn over.
        axes: values of each axis that varies; `tied` ones vary together, value by value.
        mechanisms, base: what is run, and how.
        quick: axes of `--quick`.
        tied: whether all axes vary together.
    """

    mirrors: str
    x: str
    axes: Mapping[str, str]
    quick: Mapping[str, str]
    mechanisms: str = _THREE
    base: Mapping[str, Any] | None = None
    tied: bool = False


PRESETS: dict[str, Preset] = {
    "bins": Preset(
        "Megaphone (PVLDB 12(9) 2019), section 5.3, figure 16", "bins", {"bins": "16,64,256,512"},
        {"keys": "400k", "bins": "16,64"}, base={"duration_s": 90.0},
    ),
    "domain": Preset(
        "Megaphone (PVLDB 12(9) 2019), section 5.3, figure 17", "keys", {"keys": "1M,4M,16M,32M"},
        {"keys": "200k,800k", "bins": "64"}, base={"duration_s": 60.0},
    ),
    "constant-bytes-per-bin": Preset(
        "Megaphone (PVLDB 12(9) 2019), section 5.3, figure 18", "bins",
        {"bins": "16,64,256,512", "keys": "1M,4M,16M,32M"}, {"bins": "16,64", "keys": "200k,800k"},
        base={"duration_s": 90.0}, tied=True,
    ),
    "load": Preset(
        "Megaphone (PVLDB 12(9) 2019), section 5.3, figure 19", "rate", {"rate": "2500,5k,10k,20k,40k"},
        {"keys": "400k", "bins": "64", "rate": "5k,10k"}, f"none,{_THREE}", {"duration_s": 60.0},
    ),
    "skew": Preset(
        "DRRS (ICDE 2025), skew 0 to 2; Meces (USENIX ATC 2022)", "skew", {"skew": "0,0.5,1.0,1.5", "keys": "16M"},
        {"keys": "400k", "bins": "64", "skew": "0,1.0"}, "megaphone-batched,partial-pause,order-unaware,meces",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Grid(Described):
    """Every mechanism in every cell, `rounds` times.

    Attributes:
        name: of the sweep.
        x: the axis that figures are drawn over.
        cells: values of all axes; those that vary distinguish a run from the others of its mechanism.
        base: what all runs share; its mechanisms are the grid's.
        mirrors: what of the literature it follows; empty for a free grid.
    """

    name: str
    x: str
    cells: tuple[Cell, ...]
    base: Experiment
    mirrors: str = ""

    @property
    def varied(self) -> list[str]:
        """The axes with more than one value."""
        return [axis for axis in AXES if len({cell[axis] for cell in self.cells}) > 1]

    def label(self, cell: Cell) -> str:
        """Returns a cell in a word, as folders are named by it."""
        return "-".join(f"{axis}{str(cell[axis]).replace(':', '_').replace('=', '_')}" for axis in self.varied)

    def experiment(self, cell: Cell, mechanism: str) -> Experiment:
        """Returns the experiment of a cell."""
        drawn = {"distribution": "zipf", "exponent": cell["skew"]} if cell["skew"] else {"distribution": "uniform"}
        same = {axis: cell[axis] for axis in ("keys", "bins", "rate", "policy")}
        return replace(self.base, mechanisms=(mechanism,), **same, **drawn)

    def runs(self) -> list[tuple[NamedRun, Cell]]:
        """Returns all runs in the order they are made: round by round, the order in each drawn from the seed."""
        draw = np.random.default_rng(self.base.seed)
        pairs = [(cell, *one) for cell in self.cells for one in self.base.compared()]
        out: list[tuple[NamedRun, Cell]] = []
        for round_ in range(self.base.rounds):
            for cell, name, mode in (pairs[i] for i in draw.permutation(len(pairs))):
                run = NamedRun(self.experiment(cell, name), name, round_, len(out), mode=mode)
                out.append((replace(run, place=f"{len(out):03d}-{run.short}-{self.label(cell)}-r{round_}"), cell))
        return out

    def minutes(self) -> float:
        """Returns about how long it takes."""
        each = self.base.lead_in_s + self.base.duration_s + _RUN_OVERHEAD_S
        return len(self.cells) * len(self.base.compared()) * self.base.rounds * each / 60

    def to_json(self) -> dict[str, Any]:
        """Returns all parameters."""
        grid = {"x": self.x, "varied": self.varied, "cells": list(self.cells), "mirrors": self.mirrors}
        return {**self.base.to_json(), "name": self.name, "grid": grid}


def make_grid(given: Mapping[str, Any], *, preset: str = "", quick: bool = False) -> Grid:
    """Builds a grid and checks every cell; raises UsageError with one sentence.

    Args:
        given: options: comma lists of the axes, `mechanism`, and what `make_experiment` takes for all runs.
        preset: name of a preset; what is given replaces what it says.
        quick: few small cells, a few minutes.
    """
    if preset and preset not in PRESETS:
        raise UsageError(f"The preset {preset!r} is unknown: use one of {', '.join(PRESETS)}.")
    chosen = PRESETS.get(preset)
    values = {name: value for name, value in given.items() if value is not None}
    base: dict[str, Any] = (
        {"mechanism": chosen.mechanisms, **(chosen.base or {})} if chosen else {"mechanism": _DEFAULT}
    )
    axes: dict[str, str] = {} if chosen is None else dict(chosen.quick if quick else chosen.axes)
    if quick:
        quicker = (name for name in str(base["mechanism"]).split(",") if name != "megaphone-fluid")
        base |= SWEEP_QUICK | {"mechanism": ",".join(quicker)}
    axes |= {axis: str(values.pop(axis)) for axis in AXES if axis in values}
    base |= values
    shared = make_experiment(**{**base, "name": base.get("name") or f"sweep-{preset or 'grid'}"})
    tied = chosen is not None and chosen.tied
    cells = list(_cells({axis: _values(axis, text) for axis, text in axes.items()}, shared, tied=tied))
    grid = Grid(shared.name, "", tuple(cells), shared, chosen.mirrors if chosen else "")
    if not grid.varied:
        raise UsageError(
            f"A sweep needs two values at least of one of {', '.join(AXES)}: use ./inv bench for one cell."
        )
    for cell in cells:
        check(replace(grid.experiment(cell, ""), mechanisms=shared.mechanisms))
    return replace(grid, x=chosen.x if chosen and chosen.x in grid.varied else grid.varied[0])


def _values(axis: str, text: str) -> list[Any]:
    """Reads a comma list; a policy's options have commas of their own, so that policies are separated by semicolons."""
    parts = [part.strip() for part in text.split(";" if axis == "policy" and ":" in text else ",") if part.strip()]
    if not parts:
        raise UsageError(f"--{axis} needs a value.")
    if axis == "policy":
        return parts
    if axis != "skew":
        return [parse_number(part, f"--{axis}") for part in parts]
    try:
        return [float(part) for part in parts]
    except ValueError:
        raise UsageError(f"--skew takes exponents of the Zipf law, 0 for uniform keys, not {text!r}.") from None


def _cells(axes: Mapping[str, Sequence[Any]], shared: Experiment, *, tied: bool) -> Iterator[Cell]:
    defaults: Cell = {axis: getattr(shared, axis) for axis in AXES if axis != "skew"}
    defaults["skew"] = shared.exponent if shared.distribution == "zipf" else 0.0
    if tied and len({len(values) for values in axes.values()}) != 1:
        raise UsageError(f"{' and '.join(axes)} vary together in this preset: give as many values of each.")
    for values in zip(*axes.values(), strict=True) if tied else product(*axes.values()):
        cell = {**defaults, **dict(zip(axes, values, strict=True))}
        yield {axis: cell[axis] for axis in AXES}


def sweep(grid: Grid, output: Path, *, force: bool = False, again: int = 0) -> tuple[Path, int]:
    """Runs a sweep and returns (result folder, exit code): 0 all valid, 1 not all, 130 cut off.

    A run during which the machine was busy is made anew `again` times at most.

    The newest unfinished result of the same sweep is gone on with; a finished one of the same code is returned.
    """
    finished = None if force else find_earlier(grid, output, finished=True)
    if finished is not None and unchanged(finished):
        return finished, 0
    begun = None if force else find_earlier(grid, output, finished=False)
    folder = begun or new_folder(output, grid.name)
    prepare_runs(grid, grid.runs(), folder, grid.base.seed)
    runs = [run for run, _ in grid.runs()]
    view = Lines(len(runs), sys.stdout)
    done = sum((folder / "runs" / run.folder / "done").exists() for run in runs)
    view.note(f"{grid.name}: {len(runs)} runs, {done} done before, about {grid.minutes():.0f} min for all of them")
    return folder, run_and_report(runs, folder, view, "the same options again go on", anew=again)


def grid_from(options: Mapping[str, Any]) -> Grid:
    """Returns the grid that the options of `./inv sweep` describe; raises UsageError for bad ones."""
    own = {"preset", "quick", "output", "force"}
    given = {name: value for name, value in options.items() if name not in own}
    return make_grid(given, preset=str(options.get("preset") or ""), quick=bool(options.get("quick")))


@ending()
def run_sweep(options: Mapping[str, Any]) -> int:
    """Runs a sweep, prints its comparison and the path of its result as the last line, and returns the exit code."""
    grid = grid_from(options)
    output = Path(options.get("output") or RESULTS)
    largest = max((run.experiment for run, _ in grid.runs()), key=lambda e: e.keys * e.rate)
    check_machine(largest, output)
    ensure_jars()
    folder, code = sweep(grid, output, force=bool(options.get("force")))
    print_comparison(folder)
    sys.stdout.write(f"{folder}\n")
    return code
