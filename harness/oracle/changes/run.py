"""Checks one query whose pipeline changed: its topics, its plans and its own files, into `oracle.json`."""

import base64
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.files import read_json, read_lines
from harness.oracle.bins import BinOf
from harness.oracle.changes.check import Boundaries, check
from harness.oracle.changes.columns import Code, Listed, Plans
from harness.oracle.offsets import read_ranges
from harness.oracle.read import key_column, number_columns, read_columns, read_records, result_partitions
from harness.oracle.run import read_facts, read_moves, read_waits
from harness.oracle.verdict import Facts, answered, judge

__all__ = ["VERSIONS_FILE", "check_changes"]

VERSIONS_FILE = "versions.json"


def _read_listed(bootstrap: str, topic: str, deadline_s: float) -> Listed:
    def columns_of(messages: list[Any]) -> dict[str, NDArray[Any]]:
        values = np.empty(len(messages), object)
        values[:] = [message.value or b"" for message in messages]
        return {"key": key_column(messages, topic), "value": values, **number_columns(messages, topic)}

    return read_columns(Listed, bootstrap, topic, deadline_s, columns_of)


def _read_plans(folder: Path, bins: int, *, ticks: bool) -> Plans:
    """Returns the versions that a run's folder names, and which of them each bin ran under by epoch or tick.

    `versions.json` holds codes, ids, and for a query that was started anew with other code by_generation: the first
    generation that ran under each version from 1 on; an empty plan log stands for one that does not say.
    """
    told = read_json(folder / VERSIONS_FILE)
    codes = [Code(**code) for code in told["codes"]]
    generations = told.get("by_generation", [])
    required: dict[int, NDArray[np.int64]] = {}
    for line in read_lines(folder / "plan.jsonl"):
        if told.get("unplanned"):
            break
        number = sum(line["generation"] >= first for first in generations)
        required[line["epoch"]] = _required(line["versions"]) if "versions" in line else np.full(bins, number)
    return Plans(codes, required, told["ids"], ticks=ticks)


def _required(versions: dict[str, Any]) -> NDArray[np.int64]:
    given = versions["required"]
    if isinstance(given, int):
        return np.full(versions["bins"], given, np.int64)
    return np.frombuffer(base64.b64decode(given), "<u4").astype(np.int64)


def _facts(folder: Path, plans: Plans, expected: int) -> Facts:
    """Returns the facts of a run, with its changes beside its migrations."""
    told = read_facts(folder, expected=expected + len(plans.ids))
    ends = {str(event["id"]) for event in read_lines(folder / "events.jsonl") if event["kind"] == "change_end"}
    done = ends | set(read_json(folder / VERSIONS_FILE).get("held", []))
    ids = frozenset(plans.ids)
    return Facts(told.produced, told.commanded | ids, told.completed | (ids & done), told.expected)


def _as_json(boundaries: Boundaries) -> list[dict[str, Any]]:
    return [
        {"version": version, "partition": part, "first_offset": {str(b): offset for b, offset in sorted(bins.items())}}
        for version, parts in sorted(boundaries.items())
        for part, bins in sorted(parts.items())
    ]


def check_changes(
    bootstrap: str,
    folder: Path,
    *,
    checkpoint: Path | None,
    bin_of: BinOf,
    expected_migrations: int = 0,
    input_topic: str = "in",
    output_topic: str = "out",
    deadline_s: float = 60.0,
) -> dict[str, Any]:
    """Checks a finished run, writes `oracle.json` into its folder and returns the same; never raises for a bad run.

    Besides what every oracle says there is `boundaries`: by version and partition of the input the offset of each
    bin's first record under the version.

    Args:
        bootstrap: broker addresses.
        folder: the run's folder: versions.json, generator.json, events.jsonl and plan.jsonl are read.
        checkpoint: the checkpoint folder of the query, whose offset and commit logs are read; None in real time.
        bin_of: bins of keys, see `harness.oracle.bins`.
        expected_migrations: migrations that were to be commanded.
        input_topic: topic with the input.
        output_topic: topic with the results.
        deadline_s: longest time for each topic, in seconds.
    """

    def ask() -> dict[str, Any]:
        begun = time.monotonic()
        plans, moves = _read_plans(folder, bin_of.bins, ticks=checkpoint is None), read_moves(folder)
        records = read_records(bootstrap, input_topic, deadline_s=deadline_s)
        results = _read_listed(bootstrap, output_topic, deadline_s)
        read = time.monotonic()
        where: dict[str, Any] = {"moves": moves, "partitions": result_partitions(bootstrap, output_topic)}
        if checkpoint is not None:
            where |= {"ranges": read_ranges(checkpoint, input_topic), "waits": read_waits(folder)}
        judged = check(records, results, plans, bin_of=bin_of, **where)
        seconds = {"read": round(read - begun, 3), "check": round(time.monotonic() - read, 3)}
        answer = judge(judged.found, _facts(folder, plans, expected_migrations))
        return {**answer, "boundaries": _as_json(judged.boundaries), "seconds": seconds}

    return answered(folder, ask)
