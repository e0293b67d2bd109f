"""A worker's report as JSON: nothing is lost, and what is 0 or empty is not written."""

import dataclasses
import json

import pytest

from impls.protocol.report import CacheUse, EventTimes, MovesReport, Pipelines, Queues, Replication, Report, Written

FULL = Report(
    3, attempt=1, repeated=True, recovered="missing", records=7, results=5, refused=2, rates=([1, 2], [3, 4]),
    sizes=([1], [40]), lmdb_bytes=4096, outbox_bytes=99, done_us=1_700_000_000_000_000, negative=1, pid=77,
    ms={"open": 0.5}, commits=3, breakdown={"wait": 1.5},
    host="10.0.0.2", server="grpc+tcp://10.0.0.2:7001",
    queues=Queues(([4], [2]), 200), moves=MovesReport([1], [10], 40, 1, [["b", 40, 1.5]], [[2, "gone"]]),
    replication=Replication([[5, 8]], 60, 2),
    changelog=Written([1, 2], 300, 40), snapshot=Written([2], 500, 1), cache=CacheUse(6, 1),
    pipelines=Pipelines([[1, 2]], 3, [[2, "why"], [2, "back", 7]]),
    event_time=EventTimes([[0, 12]], [5], 3, 4, 9),
)  # fmt: skip


def leaves(given):
    """Every value of a report by its name, those of its parts included."""
    out = {}
    for name, value in dataclasses.asdict(given).items():
        inner = value if isinstance(value, dict) and name not in {"ms", "breakdown"} else {"": value}
        out |= {f"{name}.{part}": part_value for part, part_value in inner.items()}
    return out


def test_a_report_comes_back_as_it_was():
    empty = leaves(Report(0))
    assert [name for name, value in leaves(FULL).items() if value == empty[name]] == [], "the example sets every field"
    as_json = json.loads(json.dumps(leaves(FULL)))
    assert json.loads(json.dumps(leaves(Report.from_json(FULL.to_json())))) == as_json


def test_what_is_zero_or_empty_is_not_written():
    text = json.loads(Report(2, moves=MovesReport([1], bytes=9)).to_json())
    assert text == {"worker": 2, "rates": [[], []], "sizes": [[], []], "moves": {"bins": [1], "bytes": 9}}


def test_a_part_that_is_not_set_cannot_be_changed_for_all_reports():
    report = Report(0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.moves.bytes = 1
