"""A chain of two recomputed from its input: the first stage counts records, the second one the first one's results.

The property: the counts of a key, without repeats and in the order of the topic between the stages, rise to the number
of its records; the second stage has seen each of them once and in that order.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.files import read_lines
from harness.oracle.columns import Numbered, Records
from harness.oracle.read import key_column, number_columns, read_columns, read_records
from harness.oracle.run import read_facts
from harness.oracle.verdict import CLASSES, Differences, Facts, answered, doubted, judge

_DEADLINE_S = 60.0
SUM_RANGE = 1 << 40  # sums of times are kept modulo this


@dataclass(frozen=True, slots=True)
class StageResults(Numbered):
    """Results of either stage: the count `n`, and of the first one the `sum` of its records' times, µs.

    Of the second one the results `seen`, and those of them that were out of order.
    """

    key: NDArray[np.int64]
    n: NDArray[np.int64]
    sum: NDArray[np.int64]
    seen: NDArray[np.int64]
    odd: NDArray[np.int64]


def _read_stage(bootstrap: str, topic: str) -> StageResults:
    """Returns a stage's results, repeats included; raises OracleError as `harness.oracle.read` does."""

    def columns_of(messages: list[Any]) -> dict[str, NDArray[Any]]:
        rows = [json.loads(message.value) for message in messages]
        values = {name: np.array([row.get(name, 0) for row in rows], np.int64) for name in ("n", "sum", "seen", "odd")}
        return {"key": key_column(messages, topic), **values, **number_columns(messages, topic)}

    return read_columns(StageResults, bootstrap, topic, _DEADLINE_S, columns_of)


Row = tuple[int, int, int, int]  # n, sum, seen, odd


def _by_key(results: StageResults) -> tuple[dict[int, list[Row]], int]:
    """Returns the results of each key without repeats, in their order, and how many results there are."""
    last: dict[tuple[int, int], tuple[int, int]] = {}
    found: dict[int, list[Row]] = defaultdict(list)
    columns = (results.partition, results.worker, results.epoch, results.index)
    values = (results.key, results.n, results.sum, results.seen, results.odd)
    for partition, worker, epoch, index, key, *row in zip(*(c.tolist() for c in (*columns, *values)), strict=True):
        if (epoch, index) > last.get((partition, worker), (-1, -1)):
            last[partition, worker] = epoch, index
            found[key].append(tuple(row))
    return found, sum(map(len, found.values()))


def _wanted(records: Records) -> dict[int, tuple[int, int]]:
    """Returns by key the number of its records, and the sum of their times."""
    keys, of, numbers = np.unique(records.key, return_inverse=True, return_counts=True)
    sums = np.zeros(len(keys), np.int64)
    np.add.at(sums, of, records.scheduled_us)
    return dict(zip(keys.tolist(), zip(numbers.tolist(), (sums % SUM_RANGE).tolist(), strict=True), strict=True))


def check(records: Records, first: StageResults, second: StageResults) -> Differences:
    """Returns what was lost, doubled, wrong or out of order in either stage."""
    totals, examples = Counter[str](), dict[str, dict[str, dict[str, Any]]]()
    counted, results = _by_key(first)
    followed, more = _by_key(second)

    def note(kind: str, number: int, **where: Any) -> None:
        if number > 0:
            totals[kind] += number
            examples.setdefault(kind, {"first": where})

    wanted = _wanted(records)
    for key in sorted({*wanted, *counted, *followed}):
        counts, rows = [n for n, *_ in counted.get(key, [])], followed.get(key, [])
        n, total, *_ = counted.get(key, [(0, 0)])[-1]
        *_, seen, odd = rows[-1] if rows else (0, 0)
        for stage, want, have in ((0, wanted.get(key, (0, 0))[0], n), (1, len(counts), seen)):
            note("lost", want - have, key=key, stage=stage, expected=want, found=have)
            note("doubled", have - want, key=key, stage=stage, expected=want, found=have)
        note("out_of_order", sum(a >= b for a, b in pairwise(counts)) + odd, key=key)
        others = key in wanted and wanted[key][0] == n and wanted[key][1] != total
        wrong = [row for row in rows if not 0 < row[2] <= len(counts) or counts[row[2] - 1] != row[0]]
        note("wrong", len(wrong) + others, key=key, found=wrong[:1])
    raw = len(first.key) + len(second.key)
    number = results + more
    return Differences({kind: totals[kind] for kind in CLASSES}, examples, len(records.key), number, raw - number)


def check_chain(folder: Path, bootstrap: str, topics: tuple[str, str, str], stages: Sequence[str]) -> dict[str, Any]:
    """Writes oracle.json of a finished chain and returns the same; never raises for a bad run.

    Args:
        folder: with the generator's files, and a folder of each stage with its events.
        bootstrap: broker addresses.
        topics: with the input, the first stage's results and the second one's.
        stages: their names.
    """

    def ask() -> dict[str, Any]:
        found = check(read_records(bootstrap, topics[0]), *(_read_stage(bootstrap, topic) for topic in topics[1:]))
        answer = judge(found, Facts(read_facts(folder).produced))
        still = [stage for stage in stages if not _migrated(folder / stage)]
        doubts = [f"Not every migration of the stage {stage} completed, or there was none." for stage in still]
        return {**answer, "verdict": doubted(answer["verdict"], doubts), "reasons": [*answer["reasons"], *doubts]}

    return answered(folder, ask)


def _migrated(folder: Path) -> bool:
    events = read_lines(folder / "events.jsonl")
    asked, done = ({event["id"] for event in events if event["kind"] == kind} for kind in ("command", "migration_end"))
    return bool(asked) and asked <= done
