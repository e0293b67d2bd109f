"""Sessions: the clicks of each user until 30 seconds have passed without one.

The query begins with 2 workers and goes on with 4, while sessions are open: their clicks so far and their timers move.
"""

from typing import Any

import impls
from impls.operators import EventTime, KeyedProcess
from rescale_bench.playground import Playground, run, say

GAP = 30  # seconds
USERS = 100


class Sessions(KeyedProcess):
    """State of a user: clicks, and the times of the first and the last one."""

    event_time = EventTime("at", partitions=2)
    columns = ("at",)

    def record(self, record: dict[str, Any], one: Any) -> None:
        clicks, begin, end = one.value() or (0, one.time, one.time)
        if clicks:
            one.cancel_timer(end + GAP)
        if one.time - end >= GAP:  # clicks of minutes may come at once, before the watermark and with it the timer
            self.timer(one)
            clicks, begin = 0, one.time
        one.set_value((clicks + 1, begin, one.time))
        one.set_timer(one.time + GAP)

    def timer(self, one: Any) -> None:
        clicks, begin, end = one.value()
        one.emit({"user": one.key.decode(), "clicks": clicks, "begin": begin, "end": end})
        one.set_value(None)


def main(here: Playground) -> None:
    clicks, results = here.topic("clicks", 2), here.topic("sessions", 4)
    rows = here.spark.readStream.format("kafka").option("kafka.bootstrap.servers", here.kafka)
    rows = rows.option("subscribe", clicks).option("startingOffsets", "earliest").load()
    parsed = rows.selectExpr("from_json(string(value), 'user string, at long') r", "partition", "offset")

    sent = sorted(input_clicks(), key=lambda click: click["at"])
    with impls.stream(
        parsed.select("r.*", "partition", "offset"), key="user", operator=Sessions(),
        results=impls.Output(here.kafka, results, 4), state_dir=here.folder / "state",
        checkpoint=here.folder / "checkpoint", workers=2, bins=64,
    ) as query:  # fmt: skip
        here.send(clicks, [click for click in sent if click["at"] < 60], by="user")
        here.results(results, 1, query)
        say(f"The first sessions have ended, others are open; workers: {query.status()['workers']}.")
        query.rescale(workers=4)
        here.send(clicks, [click for click in sent if click["at"] >= 60], by="user")
        query.await_migration(60)
        say(f"The query has not stopped; workers: {query.status()['workers']}, bins: {query.status()['bins']}.")
        here.send_everywhere(clicks, {"user": "nobody", "at": 10_000})  # time passes, so the last sessions end
        here.results(results, 2 * USERS, query)
    here.check("sessions", here.results(results), expected())


def input_clicks() -> list[dict[str, Any]]:
    """Two sessions of each user, a click every 5 seconds."""
    begins = [(user, session * 100 + user % 50) for user in range(USERS) for session in (0, 1)]
    return [{"user": f"u{user}", "at": begin + 5 * n} for user, begin in begins for n in range(2 + user % 6)]


def expected() -> list[dict[str, Any]]:
    return [
        {"user": f"u{user}", "clicks": 2 + user % 6, "begin": begin, "end": begin + 5 * (1 + user % 6)}
        for user in range(USERS)
        for begin in (user % 50, 100 + user % 50)
    ]


if __name__ == "__main__":
    run(main)
