"""Drawn processors on Spark's own operator and on this project's, in micro-batches and in real time: what differs.

A third query runs here for half of the steps, and is released to Spark's own for the others.

`python tests/drawn_on_spark.py --groups 0-19` runs 500 of them, 25 in a query, and ends with 1 where something differs.
"""

import argparse
import contextlib
import itertools
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).parents[1]
if __name__ == "__main__":  # for its Python workers too
    sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])

from cases import Case, at  # noqa: E402
from drawn import Drawn, drawn  # noqa: E402
from native_processor import Native  # noqa: E402
from own_processor import RESULT_PARTITIONS, Own, Variant  # noqa: E402
from pyspark import cloudpickle  # noqa: E402
from pyspark.sql.streaming.stateful_processor import StatefulProcessor  # noqa: E402
from released_query import Released  # noqa: E402
from side_by_side import run_side_by_side  # noqa: E402

IN_A_GROUP, USERS, STEPS, DELAY_MS, STEP_MS = 25, ("a", "b", "c" * 200), 4, 50, 70
MODES = ("None", "EventTime", "ProcessingTime")
END = "end"
MICRO_BATCH = Variant("rescaled and killed", rescaled=True, killed=True)
REAL_TIME = Variant("real time", rescaled=True, real_time=True)
Rows = list[tuple[Any, ...]]


class Many(StatefulProcessor):
    """Many processors in one: each key belongs to the one whose number it begins with."""

    def __init__(self, processors: Sequence[Drawn]):
        self._processors = processors

    def init(self, handle):
        for processor in self._processors:
            processor.init(handle)

    def handleInputRows(self, key, rows, timerValues):  # noqa: N802, N803
        yield from self._of(key).handleInputRows(key, rows, timerValues)

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):  # noqa: N802, N803
        yield from self._of(key).handleExpiredTimer(key, timerValues, expiredTimerInfo)

    def _of(self, key):
        return self._processors[int(key[0].split("/")[0]) % len(self._processors)]

    def close(self):
        pass


class OfFrames(Many):
    """The same, with frames of pandas."""

    def handleInputRows(self, key, rows, timerValues):  # noqa: N802, N803
        given = [row for frame in rows for row in frame.itertuples(index=False)]
        yield _frame(super().handleInputRows(key, given, timerValues))

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):  # noqa: N802, N803
        yield _frame(super().handleExpiredTimer(key, timerValues, expiredTimerInfo))


def _frame(rows):
    import pandas as pd

    return pd.DataFrame([row.asDict() for row in rows], columns=["user", "told"])


def case_of(group: int, *, real_time: bool) -> Case:
    """A query of a group's processors. Groups differ in time mode, and in rows or frames."""
    mode, pandas, random = MODES[group % 3], group // 3 % 2 == 1, Random(f"{group}")
    lives = mode == "ProcessingTime"
    made = [drawn(random, timed=mode != "None", lives=lives, name=f"p{i}v") for i in range(IN_A_GROUP)]
    chunks = _single(random) if real_time else _batches(random)
    return Case(
        lambda: (OfFrames if pandas else Many)(made),
        key=("user",),
        input="user string, n long, ms long, place long, at timestamp",
        output="user string, told string",
        chunks=[[(user, n, ms, place, at(ms / 1000)) for user, n, ms, place in chunk] for chunk in chunks],
        time=mode,
        watermark=("at", f"{DELAY_MS} milliseconds") if mode == "EventTime" else None,
        pandas=pandas,
        whole=True,
    )


def _batches(random: Random) -> list[Rows]:
    """Several rows of a key in a step, of which some are late; a step is one batch."""
    places = itertools.count()
    steps = [
        [(f"{i}/{random.choice(USERS)}", random.randint(0, 5), _ms(random, step), next(places)) for i in _each(3)]
        for step in range(STEPS)
    ]
    return [*steps, [(f"0/{END}", 0, 10_000, next(places))]]


def _single(random: Random) -> list[Rows]:
    """One row of a key in a step, as turns may cut it anywhere; the event time goes on between two steps."""
    places = itertools.count()
    steps = [
        step_rows
        for step in range(STEPS)
        for step_rows in (
            [
                (f"{i}/{user}", random.randint(0, 5), min(_ms(random, step), _now(step)), next(places))
                for i, user in _keys(random)
            ],
            [(f"0/{END}", 0, _now(step + 1), next(places))],
        )
    ]
    return [*steps, [(f"0/{END}", 0, 10_000, next(places))]]


def _each(times: int) -> Iterator[int]:
    return (i for i in range(IN_A_GROUP) for _ in range(times))


def _keys(random: Random) -> list[tuple[int, str]]:
    return [(i, user) for i in range(IN_A_GROUP) for user in USERS if random.random() < 0.6]


def _now(step: int) -> int:
    return 200 + STEP_MS * step


def _ms(random: Random, step: int) -> int:
    return _now(step) + random.randint(-120, 60)


def differences(group: int, spark: Any, kafka: str, folder: Path, topics: Any) -> list[str]:
    """What differs for a group."""
    out = []
    for variant in (MICRO_BATCH, REAL_TIME):
        case, where = case_of(group, real_time=variant.real_time), folder / str(group) / variant.name.replace(" ", "-")
        topic = topics(2)
        native, back = Native(case, spark, kafka, topic, where), Native(case, spark, kafka, topic, where / "back")
        wheres = [(kafka, topic, topics(RESULT_PARTITIONS)) for _ in range(2)]
        own, left = (
            Own(case, spark, one, where / name, variant) for one, name in zip(wheres, ("own", "left"), strict=True)
        )
        released = Released(case, spark, left, back, len(case.chunks) // 2)
        try:
            out += run_side_by_side(case, kafka, topic, native, [own, released])
        finally:
            for query in (native, own, left, back):
                with contextlib.suppress(Exception):  # what has failed says so above
                    query.stop()
            own.close()
            left.close()
    return [f"group {group}: {line}" for line in out]


def main(groups: Sequence[int]) -> int:
    """Runs groups on a broker and a session of their own."""
    import own_processor

    from harness.lab.bringup import bring_up, open_session
    from harness.lab.topics import create_topics
    from impls.spark.realtime.settings import real_time_settings, real_time_threads

    for module in (own_processor, sys.modules["drawn"]):
        cloudpickle.register_pickle_by_value(module)
    numbers, found = itertools.count(), list[str]()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="drawn-")))

        def session() -> Any:
            return open_session("drawn", 2 * real_time_threads(2, 3) + 1, settings=real_time_settings())

        here = stack.enter_context(bring_up(folder, session=session))

        def topics(partitions: int) -> str:
            name = f"topic-{next(numbers)}"
            create_topics(here.broker.bootstrap, {name: partitions})
            return name

        for group in groups:
            lines = differences(group, here.spark, here.broker.bootstrap, folder, topics)
            found += lines
            sys.stdout.write(json.dumps({"group": group, "differs": len(lines), "first": lines[:10]}) + "\n")
            sys.stdout.flush()
    return 1 if found else 0


def _numbers(text: str) -> list[int]:
    first, _, last = text.partition("-")
    return list(range(int(first), int(last or first) + 1))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=_numbers, default="0-19", help="numbers, as 3 or 0-19")
    sys.exit(main(parser.parse_args().groups))
