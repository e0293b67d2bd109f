"""What the oracle reads of a run besides the topics: Spark's logs, the run's own files."""

import json

import numpy as np
import pytest

from harness.oracle.columns import OracleError, dense_bins, hash_bins
from harness.oracle.read import read_ranges
from harness.oracle.run import read_facts, read_moves
from impls.protocol.plan import EpochPlan, Pull, WrittenPlan
from impls.store.hashing import bin_of_hash, hash_int64

METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1795241899774,"conf":{"spark.sql.shuffle.partitions":"4"}}'


def _checkpoint(folder, ends, committed):
    for name in ("offsets", "commits"):
        (folder / name).mkdir()
    for epoch, line in ends.items():
        (folder / "offsets" / str(epoch)).write_text(f"v1\n{METADATA}\n{line}\n{epoch}")
        (folder / "offsets" / f".{epoch}.crc").write_bytes(b"crc")
    for epoch in committed:
        (folder / "commits" / str(epoch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return folder


def test_committed_epochs_have_their_ranges(tmp_path):
    lines = {0: "-", 1: '{"in":{"1":7,"0":5}}', 2: '{"in":{"0":5,"1":9}}', 10: '{"in":{"0":6,"1":9}}'}
    lines |= dict.fromkeys(range(3, 10), lines[2]) | {11: '{"in":{"0":20,"1":20}}'}
    ranges = read_ranges(_checkpoint(tmp_path, lines, range(11)), "in")
    table = ranges.table().to_pylist()
    assert [tuple(row.values()) for row in table] == [(1, 1, 0, 7), (1, 0, 0, 5), (2, 1, 7, 9), (10, 0, 5, 6)]


def test_purged_log_cannot_be_checked(tmp_path):
    lines = dict.fromkeys(range(3, 6), '{"in":{"0":5}}')
    with pytest.raises(OracleError, match=r"lack 3 epochs, first 0: set .*minBatchesToRetain"):
        read_ranges(_checkpoint(tmp_path, lines, lines), "in")


def test_checkpoint_without_a_commit_cannot_be_checked(tmp_path):
    with pytest.raises(OracleError, match="No epoch is committed"):
        read_ranges(tmp_path, "in")


def test_other_topics_and_sources_are_passed_over(tmp_path):
    lines = {0: '17\n{"other":{"0":3}}\n{"in":{"0":4}}\n{"rowsPerSecond":1}'}
    ranges = read_ranges(_checkpoint(tmp_path, lines, lines), "in")
    assert [tuple(row.values()) for row in ranges.table().to_pylist()] == [(0, 0, 0, 4)]


def _plan(epoch, routing, pulls=()):
    return WrittenPlan(epoch, 1, 2, EpochPlan(np.array(routing, np.int32), tuple(pulls))).to_json()


def _write(file, lines):
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_moves_are_pulls_and_changes_of_routing(tmp_path):
    plans = [_plan(0, [0, 0, 1, 1]), _plan(1, [0, 1, 1, 1], [Pull(1, 0, 1)]), _plan(2, [0, 1, 1, 1])]
    _write(tmp_path / "plan.jsonl", [*plans, plans[2], _plan(3, [0, 1, 0, 0])])
    events = [("command", "a", 0), ("migration_begin", "a", 1), ("migration_end", "a", 1), ("migration_begin", "b", 3)]
    _write(tmp_path / "events.jsonl", [{"kind": kind, "id": id_, "epoch": epoch} for kind, id_, epoch in events])
    moves = read_moves(tmp_path)
    assert [tuple(row.values()) for row in moves.table().to_pylist()] == [(1, 1, "a"), (3, 2, "b"), (3, 3, "b")]


def test_facts_come_from_the_run_folder_and_half_lines_are_left(tmp_path):
    assert read_facts(tmp_path).produced is None
    (tmp_path / "generator.json").write_text('{"records": 12}')
    (tmp_path / "events.jsonl").write_text('{"kind":"command","id":"a"}\n{"kind":"migration_end","id":"a"')
    facts = read_facts(tmp_path)
    assert (facts.produced, facts.commanded, facts.completed) == (12, {"a"}, frozenset())
    assert len(read_moves(tmp_path)) == 0


def test_bins_agree_with_the_pipeline_though_computed_apart():
    keys = np.random.default_rng(3).integers(-(2**63), 2**63 - 1, 500)
    assert hash_bins(64)(keys).tolist() == bin_of_hash(hash_int64(keys), 64).tolist()
    assert dense_bins(10, 4)(np.arange(10)).tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3]
