"""Part hop: what a second stage of a chain costs, in real time: latencies to either stage, and in a rescale of each.

The chain is that of `./inv fault-test --chain`, with nothing going wrong: counts, and behind them counts of the counts.
The same records are measured twice in one run, up to the first stage and up to the second one.
"""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.experiment.description import Experiment
from harness.experiment.parameters import REAL_TIME
from harness.files import read_json, read_lines, write_json
from harness.measure.cells import Cells, read_cells, read_epochs
from harness.measure.hdr import summary_ms
from harness.measure.migrations import Migration, migrations_of
from harness.suites.faults.chain_query import STAGES
from harness.suites.faults.chain_site import ChainSite
from harness.suites.perf.part import Check, Part, PartResult, Scale, Spread, Table
from impls.errors import StateError

_BOUND = 2.2
_MECHANISM = "megaphone-batched"
_WARM_S, _DEADLINE_S = 10.0, 120.0


class _Site(ChainSite):
    """The chain under a load that is measured."""

    def __init__(self, folder: Path, rate: int):
        super().__init__(folder, _MECHANISM, seed=1, durability="process", mode=REAL_TIME)
        self.rate = rate

    def _experiment(self) -> Experiment:
        return replace(super()._experiment(), rate=self.rate, arrivals_ms=10.0, batch="60 seconds")

    def _await_ready(self) -> None:
        self.await_true(self.settled, "both stages to answer", self.start_deadline_s)

    def pass_time(self, seconds: float) -> None:
        """Returns when records of so many seconds more are applied by the first stage."""
        goal = self.applied_by(STAGES[0]) + round(self.rate * seconds)
        self.await_true(lambda: self.applied_by(STAGES[0]) >= goal, f"{goal} records to be applied", _DEADLINE_S)


def _run(folder: Path, rate: int, steady_s: float) -> None:
    """Runs the chain, rescales each stage there and back, and writes chain.json; StateError if it is not valid."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    site = _Site(folder, rate)
    try:
        site.start()
        site.pass_time(_WARM_S + steady_s)
        for _ in range(2 * len(STAGES)):
            site.begin_fault()
            site.migrate()
            site.await_true(site.settled, "the rescale to end", _DEADLINE_S)
            site.pass_time(2.0)
        answer = site.stop_and_check()
    finally:
        site.close()
    if answer["verdict"] != "valid":
        raise StateError(f"The chain in {folder} is {answer['verdict']}: {'; '.join(answer['reasons'])}")
    write_json(folder / "chain.json", _measured(folder))
    for heavy in ("state", "checkpoint", "broker"):
        shutil.rmtree(folder / heavy, ignore_errors=True)


def _measured(folder: Path) -> dict[str, Any]:
    """Returns by stage its latencies while nothing moves, ms, and the highest of the whole chain in its rescales."""
    moves = {stage: _migrations(folder / stage) for stage in STAGES}
    first_us = min(one.begin_us for found in moves.values() for one in found)
    begin_us = read_json(folder / "load.json")["start_us"] + round(_WARM_S * 1e6)
    whole, out = read_cells(folder / STAGES[-1] / "cells.jsonl"), {}
    for stage, found in moves.items():
        cells = read_cells(folder / stage / "cells.jsonl")
        steady = cells.take((cells.scheduled_us >= begin_us) & (cells.scheduled_us < first_us - 1_000_000))
        peaks = [_highest_ms(whole, one) for one in found]
        out[stage] = {**summary_ms(steady.latency_us, steady.count), "peak": max(peaks)}
    return out


def _migrations(folder: Path) -> list[Migration]:
    return migrations_of(read_lines(folder / "events.jsonl"), read_epochs(folder / "epochs.jsonl"))


def _highest_ms(cells: Cells, migration: Migration) -> float:
    assert migration.end_us is not None, "the run is valid, so that its migrations have ended"
    inside = cells.take((cells.done_us >= migration.begin_us) & (cells.scheduled_us <= migration.end_us))
    return float(summary_ms(inside.latency_us, inside.count)["max"])


def _measure(folder: Path, scale: Scale) -> PartResult:
    rate, found = scale.pick(5_000, 500), []
    for number in range(scale.pick(3, 1)):
        place = folder / f"round-{number}"
        if not (place / "chain.json").exists():
            _run(place, rate, scale.pick(15.0, 4.0))
        found.append(read_json(place / "chain.json"))
    rows = [
        [
            f"{place} stage",
            *(Spread(tuple(one[stage][name] for one in found)).text(1) for name in ("p50", "p99", "peak")),
        ]
        for place, stage in zip(("first", "second"), STAGES, strict=True)
    ]
    ratios = [one[STAGES[1]]["p50"] / one[STAGES[0]]["p50"] for one in found]
    return PartResult(
        [Table("Two stages in real time", ("up to the", "p50, ms", "p99, ms", "highest in its rescales, ms"), rows,
               f"{rate:,} records/s, from when a record was due; the highest latencies are those of the whole chain.")],
        [Check.of("steady p50 of two stages over that of one", ratios, _BOUND, at_most=True)],
    )  # fmt: skip


PART = Part("A hop from stage to stage", 6, _measure)
