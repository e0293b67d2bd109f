"""Spark's progress goes without figures where Spark is another inside: the query goes on, and one warning is logged."""

import logging
from types import SimpleNamespace

from impls.spark.progress import ProgressMetrics


def test_a_spark_that_is_another_inside_is_warned_of_once(caplog):
    asked = []

    def figures():
        asked.append(1)
        return {"records": 3}

    metrics = ProgressMetrics(SimpleNamespace(), figures)
    with caplog.at_level(logging.WARNING, "impls.spark"):
        metrics.tell(SimpleNamespace())
        metrics.tell(SimpleNamespace())
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert caplog.messages[0].startswith("Spark's progress is told no figures of this query: ")
    assert len(asked) == 1, "nothing is computed that nobody gets"
