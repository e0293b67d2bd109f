"""What is said beside the table: this runtime against the others, what each promises, what cannot be seen here."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["CANNOT", "PROMISES", "conclusions", "guarantees", "summary"]

_OURS = "megaphone-batched, real time"
PROMISES = {
    "this runtime": (
        "exactly once in its state; results at least once, a repeat has the number of the first; changelog written "
        "with every turn, snapshots in the background"
    ),
    "native-real-time": (
        "exactly once in its state, results at least once; what came in since the begin of the batch (--batch) comes "
        "again after a restart"
    ),
    "flink-adaptive, flink-savepoint": (
        "exactly once in its state, results at least once as the sink is; checkpoint every checkpoint_s (10 s)"
    ),
    "kafka-streams-*": (
        "at least once in state and results by default (guarantee=exactly_once_v2 for exactly once); commit every "
        "commit_ms (30 s); changelog topic in Kafka"
    ),
}
CANNOT = (
    "What this comparison cannot show: one machine of few cores, broker and generator beside the engine, so no engine "
    "has its usual room; one broker without replicas, and local disks in place of object stores; a count per key, the "
    "smallest state there is per key; no engine was tuned beyond the settings named."
)


def guarantees() -> list[str]:
    """Returns a line of a list for each engine."""
    return [f"- {engine}: {text}." for engine, text in PROMISES.items()]


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns a sentence: from which to which ratio this runtime goes over all engines and numbers of keys."""
    found = [ratios for _, _, ratios in _compared(rows)]
    spans = {name: [ratios[name] for ratios in found if name in ratios] for name in _WORDS}
    told = [f"its {_WORDS[name]} {min(span):.2f} to {max(span):.2f} times" for name, span in spans.items() if span]
    return f"This runtime against each other engine: {', '.join(told)} theirs." if told else ""


def conclusions(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns sentences: at each number of keys this runtime's peak and steady latency over those of each other.

    Medians over the rounds; runs that are not valid, or were made on a busy machine, are left out.
    """
    return [
        f"{keys:,} keys, this runtime against {engine}: "
        + ", ".join(f"{value:.2f} times its {_WORDS[name]}" for name, value in ratios.items())
        + "."
        for keys, engine, ratios in _compared(rows)
    ]


_WORDS = {"peak_ms": "highest latency in a rescale", "p50_ms": "steady p50", "p99_ms": "steady p99"}


def _compared(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, str, dict[str, float]]]:
    """Yields keys, engine and this runtime's figures over the engine's, where there are any."""
    for keys in sorted({row["keys"] for row in rows}):
        here = [row for row in rows if row["keys"] == keys and row["verdict"] == "valid"]
        for engine in sorted({row["engine"] for row in here if not row["engine"].startswith(_OURS)}):
            fault = engine[len(engine.partition(" with ")[0]) :]
            ours, theirs = ([row for row in here if row["engine"] == name] for name in (_OURS + fault, engine))
            ratios = {name: value for name in _WORDS if (value := _ratio(ours, theirs, name)) is not None}
            if ratios:
                yield keys, engine, ratios


def _ratio(ours: Iterable[Mapping[str, Any]], theirs: Iterable[Mapping[str, Any]], name: str) -> float | None:
    values = [[row[name] for row in rows if row[name] is not None] for rows in (ours, theirs)]
    return float(np.median(values[0]) / np.median(values[1])) if all(values) else None
