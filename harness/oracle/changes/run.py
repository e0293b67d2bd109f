"""Checks one query whose pipeline changed: its topics, its plans and its own files, into `oracle.json`."""

import base64
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.files import read_json, read_lines
from harness.oracle.changes.check import Boundaries, check
from harness.oracle.changes.columns import Listed, Plans, VersionEffect
from harness.oracle.read import key_column, number_columns, read_columns, read_ranges
from harness.oracle.run import CheckedRun, Stopwatch, read_facts, read_moves, read_waits
from harness.oracle.verdict import Facts, judge

VERSIONS_FILE = "versions.json"


def _read_listed(bootstrap: str, topic: str, deadline_s: float) -> Listed:
    def columns_of(messages: list[Any]) -> dict[str, NDArray[Any]]:
        values = np.empty(len(messages), object)
        values[:] = [message.value or b"" for message in messages]
        return {"key": key_column(messages, topic), "value": values, **number_columns(messages, topic)}

    return read_columns(Listed, bootstrap, topic, deadline_s, columns_of)


def _read_plans(folder: Path, bins: int, *, real_time: bool) -> Plans:
    """Returns the versions that a run's folder names, and which of them each bin ran under by epoch.

    `versions.json` holds codes, ids, and for a query that was started anew with other code by_generation: the first
    generation that ran under each version from 1 on; an empty plan log stands for one that does not say.
    """
    told = read_json(folder / VERSIONS_FILE)
    codes = [VersionEffect(**code) for code in told["codes"]]
    generations = told.get("by_generation", [])
    required: dict[int, NDArray[np.int64]] = {}
    for line in read_lines(folder / "plan.jsonl"):
        if told.get("unplanned"):
            break
        number = sum(line["generation"] >= first for first in generations)
        required[line["epoch"]] = _required(line["versions"]) if "versions" in line else np.full(bins, number)
    return Plans(codes, required, told["ids"], real_time=real_time)


def _required(versions: dict[str, Any]) -> NDArray[np.int64]:
    given = versions["required"]
    if isinstance(given, int):
        return np.full(versions["bins"], given, np.int64)
    return np.frombuffer(base64.b64decode(given), "<u4").astype(np.int64)


def _facts(run: CheckedRun, plans: Plans) -> Facts:
    """Returns the facts of a run, with its changes beside its migrations."""
    told = read_facts(run.folder, expected=run.expected_migrations + len(plans.ids))
    ends = {str(event["id"]) for event in read_lines(run.folder / "events.jsonl") if event["kind"] == "change_end"}
    done = ends | set(read_json(run.folder / VERSIONS_FILE).get("held", []))
    ids = frozenset(plans.ids)
    return Facts(told.produced, told.commanded | ids, told.completed | (ids & done), told.expected)


def _as_json(boundaries: Boundaries) -> list[dict[str, Any]]:
    return [
        {"version": version, "partition": part, "first_offset": {str(b): offset for b, offset in sorted(bins.items())}}
        for version, parts in sorted(boundaries.items())
        for part, bins in sorted(parts.items())
    ]


def check_changes(run: CheckedRun, checkpoint: Path | None) -> dict[str, Any]:
    """Writes oracle.json of a finished run and returns the same; never raises for a bad run.

    Besides what every oracle says there is `boundaries`: by version and partition of the input the offset of each
    bin's first record under the version.

    Args:
        run: what is checked; its folder has versions.json too.
        checkpoint: the checkpoint folder of the query, whose offset and commit logs are read; None in real time.
    """

    def ask(watch: Stopwatch) -> dict[str, Any]:
        plans = _read_plans(run.folder, run.bin_of.bins, real_time=checkpoint is None)
        records, results = run.records(), _read_listed(run.bootstrap, run.topics[1], run.deadline_s)
        watch.read()
        where: dict[str, Any] = {"moves": read_moves(run.folder), "partitions": run.partitions()}
        if checkpoint is not None:
            where |= {"ranges": read_ranges(checkpoint, run.topics[0]), "waits": read_waits(run.folder)}
        judged = check(records, results, plans, bin_of=run.bin_of, **where)
        answer = judge(judged.found, _facts(run, plans))
        return {**answer, "boundaries": _as_json(judged.boundaries), "seconds": watch.seconds()}

    return run.answer(ask)
