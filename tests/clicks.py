"""Clicks in a topic by windows of event time, and how many there are of each user and window."""

import json
from collections import Counter
from datetime import UTC, datetime, timedelta

from pyspark.sql import functions as F  # noqa: N812
from topics import json_rows, producer_for

BEGIN, SECONDS = datetime(2026, 1, 1, tzinfo=UTC), 10


class Clicks:
    """Clicks in a topic, and how many of each user are in each window."""

    def __init__(self, kafka, topic):
        self.kafka, self.topic, self.counts = kafka, topic, Counter()
        self._producer = producer_for(kafka)

    def send(self, seconds, *, late=False):
        for second in seconds:
            for user in ("a", "b", "c"):
                click = {"user": user, "at": (BEGIN + timedelta(seconds=second)).isoformat()}
                self._producer.produce(self.topic, json.dumps(click), partition=second % 2)
                self.counts[user, second // SECONDS * SECONDS] += not late
        self._producer.flush(10)

    def frame(self, spark):
        clicks = json_rows(spark, self.kafka, self.topic, "user string, at timestamp").withWatermark("at", "3 seconds")
        return clicks.withColumn("window", F.window("at", f"{SECONDS} seconds"))
