"""The tasks that make a checkpoint of this project's from that of a stopped Spark query, and the other way round."""

import re
from typing import Any

from invoke.context import Context

from harness.cli.verb import run, verb
from harness.options.declared import COUNT, FLAG, FOLDER, NAMES, POWER, Option
from impls.errors import UsageError

_ONE = re.compile(r"\s*(\w+\s*\([^()]*\))\s+(?:as\s+)?(`[^`]+`|\w+)\s*", re.I)
_BETWEEN = re.compile(r",(?![^()]*\))")


@verb(
    Option("checkpoint", "checkpointLocation of the stopped Spark query: a folder or a URI", FOLDER, required=True),
    Option("into", "folder of the new checkpoint", FOLDER, required=True),
    Option("bootstrap", "addresses of the brokers of the query's input", default="localhost:9092"),
    Option("aggregates", 'of groupBy().agg(), in the query\'s order: "count(*) AS n, sum(amount) AS total"',
           shown="needed for groupBy().agg()"),
    Option("processor", "name of the class of transformWithState's processor", default="",
           shown="needed for transformWithState"),
    Option("pandas", "the processor takes frames of pandas (transformWithStateInPandas)", FLAG),
    Option("keys", "names of the key's columns", NAMES, shown="those in the state"),
    Option("output_mode", "of aggregates by windows: update or append, as the query had it", default="",
           choices=("", "update", "append"), subject="The output mode", shown="needed for windows under a watermark"),
    Option("types", 'of columns in the aggregates, as in "price decimal(8,2)": of decimals that are short', default="",
           shown="those that state tells"),
    Option("bins", "units of routing and movement", POWER, default=256, least=1, most=16_384,
           subject="The number of bins"),
    Option("workers", "workers that begin", COUNT, default=2, least=1, subject="The number of workers"),
    Option("durability", "what the state will survive", default="process", choices=("process", "host")),
    Option("log_dir", "folder or URI of changelog and snapshots", FOLDER, shown="in the new checkpoint"),
    Option("threads", "tasks that run at once", COUNT, default=2, least=1, subject="The number of threads"),
)  # fmt: skip
def adopt(c: Context, **given: Any) -> None:
    """Make a checkpoint from that of a stopped Spark query, which then goes on here and can be rescaled live.

    State, offsets and the batch's number are those behind the last batch that Spark has committed. The Spark query's
    own checkpoint is only read, and the new one is there whole or not at all.
    """
    text = given.pop("aggregates")
    run("harness.run.adopt:run_adopt", given, None if text is None else aggregates_of(text))


@verb(
    Option("checkpoint", "checkpoint of the stopped query; of a chain that of a stage", FOLDER, required=True),
    Option("into", "folder of the new checkpoint of Spark's", FOLDER, required=True),
    Option("query", "FILE.py:FUNCTION that takes a session and returns what the Spark query writes", required=True),
    Option("output_mode", "of the Spark query", default="update", choices=("update", "append"),
           subject="The output mode"),
    Option("partitions", "partitions of the state in Spark", COUNT, default=200, least=1,
           subject="The number of partitions"),
    Option("format", "form of Spark's state, its stateStore.checkpointFormatVersion",
           default="1", choices=("1", "2"), subject="The format"),
    Option("place", "folder or URI by which Spark will find the new checkpoint", FOLDER, default="", shown="--into"),
    Option("log_dir", "folder or URI of changelog and snapshots", FOLDER, shown="in the checkpoint"),
    Option("scratch", "folder with room for the state", FOLDER, shown="that of temporary files"),
    Option("threads", "tasks that run at once", COUNT, default=2, least=1, subject="The number of threads"),
)  # fmt: skip
def release(c: Context, **given: Any) -> None:
    """Make a checkpoint of Spark's own from that of a stopped query, with which the same query goes on in Spark.

    State, offsets, watermark and the batch's number are those behind the last epoch that has ended. The checkpoint here
    is only read, and the new one is there whole or not at all.
    """
    run("harness.run.release:run_release", given)


def aggregates_of(text: str) -> dict[str, str]:
    """Returns aggregates by the names of their results.

    >>> aggregates_of("count(*) AS n, sum(amount) total")
    {'n': 'count(*)', 'total': 'sum(amount)'}

    Raises UsageError when one has no name, or one that another has.
    """
    aggregates: dict[str, str] = {}
    for part in _BETWEEN.split(text):
        match = _ONE.fullmatch(part)
        if match is None:
            raise UsageError(f'The aggregate {part.strip()!r} has no name: write it as in "count(*) AS n".')
        name = match[2].strip("`")
        if name in aggregates:
            raise UsageError(f"Two aggregates have the name {name!r}.")
        aggregates[name] = match[1]
    return aggregates
