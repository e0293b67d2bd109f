"""Part moved: how fast state moves, end to end: bytes over the time from the first to the last moved bin."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.experiment.make import make_experiment
from harness.suites.perf.interleave import interleave, migrations
from harness.suites.perf.part import Check, Part, PartResult, Scale, Spread, Table

__all__ = ["PART", "measure"]

_BOUND_MB_S = 100.0


def measure(folder: Path, scale: Scale) -> PartResult:
    """Moves a quarter of the state all at once and back: 40 M dense keys, and 4 M entries of hash-count."""
    keys = {"dense": scale.pick("40M", "400k"), "hash": scale.pick("4M", "20k")}
    variants = {
        workload: make_experiment(
            mechanism="megaphone-all-at-once", name="perf", workload=workload, keys=count,
            rate=scale.pick("10000", "1000"), duration_s=scale.pick(24.0, 9.0), lead_in_s=3.0,
        )
        for workload, count in keys.items()
    }  # fmt: skip
    entries = interleave(variants, scale.pick(2, 1), folder)
    moves = {name: migrations(found) for name, found in entries.items()}
    speed = {name: Spread(tuple(_mb(m) / m["duration_s"] for m in found)) for name, found in moves.items()}
    rows = [[name, keys[name], *_row(found), speed[name].text()] for name, found in moves.items()]
    columns = ("workload", "keys", "MB moved", "epochs' time, ms", "longest pull, ms", "MB/s end to end")
    sentence = "dense state moved by all-at-once, MB/s end to end"
    return PartResult(
        [Table("State moved per second", columns, rows, "Megaphone all-at-once; durability process.")],
        [Check(sentence, speed["dense"].median, _BOUND_MB_S, at_most=False)],
    )


def _mb(migration: Mapping[str, Any]) -> float:
    return float(migration["bytes"]) / 1e6


def _row(migrations: Sequence[Mapping[str, Any]]) -> list[str]:
    size = Spread(tuple(_mb(m) for m in migrations))
    took = Spread(tuple(m["duration_s"] * 1e3 for m in migrations))
    pull = Spread(tuple(m["longest_pull_ms"] for m in migrations))
    return [f"{size.median:,.1f}", took.text(), pull.text()]


PART = Part("moved", "State moved per second", 4, measure)
