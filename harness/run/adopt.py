"""What `./inv adopt` does: a session of Spark's, progress while it works, and at the end what was adopted."""

import sys
from collections.abc import Mapping
from typing import Any

from harness.lab.bringup import open_session, stop_session
from harness.options import ending
from impls.adoption.adopting import Adopted, adopt
from impls.errors import UsageError


@ending("The checkpoint was not made.")
def run_adopt(given: dict[str, Any], aggregates: Mapping[str, str] | None) -> int:
    """Adopts a checkpoint as the options say, prints what was adopted and returns the exit code."""
    if (aggregates is None) == (not given["processor"]):
        raise UsageError(
            'Name the aggregates of the query, as in --aggregates "count(*) AS n, sum(amount) AS total", or the class '
            "of its processor, as in --processor Sessions."
        )
    native, into = given.pop("checkpoint"), given.pop("into")
    spark = open_session("adopt", given.pop("threads"))
    try:
        adopted = adopt(spark, native, into, aggregates=aggregates, tell=_tell, **given)
    finally:
        stop_session(spark)
    sys.stderr.write("\n")
    sys.stdout.write(f"{in_words(adopted)}\n{into}\n")
    return 0


def _tell(done: int, total: int) -> None:
    sys.stderr.write(f"\rstate is read and written: {done} of {total} tasks ")
    sys.stderr.flush()


def in_words(adopted: Adopted) -> str:
    """Returns two sentences: what was adopted, and where the query goes on."""
    size, files = (f"{number / 1e6:,.1f} MB" for number in (adopted.state_bytes, adopted.file_bytes))
    what = (
        f"{adopted.entries:,} entries of state ({size}, {files} in snapshots) were adopted in {adopted.seconds:.1f} s."
    )
    next_ = adopted.batch + 1
    anew = f" Batch {next_} was planned and not committed: its records are processed anew." if adopted.planned else ""
    return f"{what} The query goes on behind batch {adopted.batch} with epoch {next_}.{anew}"
