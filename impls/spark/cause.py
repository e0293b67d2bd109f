"""The cause of a failed query in one line, and Spark's loggers that would print stacks where none is needed."""

import re
from collections.abc import Iterable
from itertools import takewhile

from pyspark.sql import SparkSession

from impls.errors import FOR_KEY

_MOST = 500  # characters of an exception's text
_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r'\s+File "(?P<path>.+)", line (?P<line>\d+), in (?P<where>.+)')
_OURS = r"[/\\](impls|pyspark)[/\\]|^<frozen"
_PYTHONS = r"[/\\]lib(64)?[/\\]python3\.\d+[/\\](?!(site|dist)-packages)"
_NOT_THE_USERS = (  # a user's code may be a package that is installed
    re.compile(rf"{_OURS}|{_PYTHONS}|[/\\](site|dist)-packages[/\\]"),
    re.compile(rf"{_OURS}|{_PYTHONS}"),
)
_NOISE = re.compile(r"^impls\.errors\.\w+: |\s*SQLSTATE: \w+")  # beside a sentence of our own
_ENDED, _QUERY = "terminated with exception: ", "=== Streaming Query ==="
_JAVA = re.compile(rf"\s+at [^ ]+\(.*\)$|(Driver|JVM) stacktrace:|{_QUERY}")  # an exception may say anything else


def cause_of(text: str) -> str:
    """Returns a sentence: the exception that a task raised, for which key, and the line of the user's code.

    >>> cause_of('''Job aborted: PythonException: Traceback (most recent call last):
    ...   File "/lib/pyspark/worker.py", line 9, in main
    ...     process()
    ...   File "/home/me/rules.py", line 12, in handleInputRows
    ...     assert total >= 0
    ... AssertionError
    ...
    ...     at org.apache.spark.Task.run(Task.scala:1)''')
    'The query failed: AssertionError, at rules.py:12 in handleInputRows: assert total >= 0'
    """
    lines = text.splitlines()
    begins = [place for place, line in enumerate(lines) if line.rstrip().endswith(_TRACEBACK)]
    if not begins:
        return f"The query failed: {_named(lines)}"
    frames, said, notes = _parts(lines[begins[-1] + 1 :])
    said = [_NOISE.sub("", line) for line in said]
    words = " ".join(line for line in said if line not in notes)[:_MOST] or _named(lines)
    told = "".join([words.rstrip(), *(f" {note}" for note in notes[-1:]), _users_line(frames)])
    return f"The query failed: {told}"


def _named(lines: list[str]) -> str:
    """Returns the last line that names an exception, else what stands before Spark's description of the query."""
    named = [line.strip() for line in lines if "Error:" in line or "Exception:" in line]
    told = [line.strip() for line in takewhile(lambda line: not line.startswith(_QUERY), lines) if line.strip()]
    return (named or told or ["no message"])[-1].rpartition(_ENDED)[2][:_MOST]


def _parts(lines: list[str]) -> tuple[list[str], list[str], list[str]]:
    """Returns the lines of a traceback's frames, those of its exception, and its notes, wherever they stand."""
    end = next((place for place, line in enumerate(lines) if line and not line[0].isspace()), len(lines))
    said = takewhile(lambda line: not _JAVA.match(line), lines[end:])
    notes = [line.strip() for line in lines[end:] if FOR_KEY in line]
    return lines[:end], [line.strip() for line in said if line.strip()], notes


def _users_line(frames: list[str]) -> str:
    """Returns the last line of the user's own code, rather than of a library that it calls; "" if there is none."""
    for others in _NOT_THE_USERS:
        for place in reversed(range(len(frames))):
            match = _FRAME.match(frames[place])
            if match is not None and not others.search(match["path"]):
                following = "".join(frames[place + 1 : place + 2])
                code = "" if _FRAME.match(following) or not following.strip() else f": {following.strip()}"
                return f", at {match['path'].rpartition('/')[2]}:{match['line']} in {match['where']}{code}"
    return ""


def silence(spark: SparkSession, loggers: Iterable[str]) -> None:
    """Lets loggers be silent; they are named by what follows `org.apache.spark.`."""
    log4j = spark._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    for logger in loggers:
        log4j.core.config.Configurator.setLevel(f"org.apache.spark.{logger}", log4j.Level.OFF)
