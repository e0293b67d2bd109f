"""A running query places its bins by the rates and sizes it has measured."""

import json

import pytest
from pipeline import Pipeline

from impls.errors import UsageError
from impls.operators import HashCount
from impls.placement import goal

pytestmark = pytest.mark.spark


@pytest.mark.capability
def test_a_query_is_rebalanced_by_what_was_measured(spark, kafka, topic_factory, tmp_path):
    operator = HashCount(512, value_bytes=300, cost_us=10)
    topics = topic_factory(2), topic_factory(4)
    run = Pipeline(
        spark, kafka, topics, tmp_path / "run", "megaphone-batched", "hash", "zipf", keys=512, operator=operator
    )
    run.send(3000)
    query = run.start()
    try:
        run.await_applied()
        rates, sizes = query.measured
        assert rates.sum() > 0
        assert sizes.sum() == 512 * (8 + 300 + 4)
        with pytest.raises(UsageError, match="unknown"):
            query.rebalance(policy="magic")
        before = query.goal
        query.rebalance(policy="load_aware:imbalance=0.01")
        assert query.await_migration(60), query.status()
        after = query.goal
        run.send(1000)
        run.await_applied()
    finally:
        run.stop()
    assert (after != before).any()
    lines = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    (moves,) = [line["moves"] for line in lines if line["kind"] == "command"]
    assert moves["bins"] == (after != before).sum() == sum(line["moved_bins"] for line in run.epochs())
    assert moves["size"] == sum(line["moved_bytes"] for line in run.epochs())
    assert moves["bins_minimum"] <= moves["bins"]
    assert (goal("minimal_move", before, 2) == before).all(), "bins alone would have given no reason to move"
    run.assert_valid(1)
