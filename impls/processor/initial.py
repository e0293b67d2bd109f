"""The files of a processor's initial state, one for each bin that has any: when they are written, and by which job."""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from impls.driver.journal import replace_bytes
from impls.errors import ADVICE, UsageError
from impls.operators.base import quoted
from impls.processor.operator import DONE
from impls.store.hashing import bin_sql
from impls.store.records import to_bytes


class InitialFiles:
    """The files of an initial state: written when the query begins, and from its first plan on as they are.

    Args:
        folder: of the files, which all hosts must see.
        bins: number of bins.
        job: writes a file for each bin with rows into a folder.
    """

    def __init__(self, folder: Path, bins: int, job: Callable[[Path], None]):
        self._folder, self._bins, self._job = folder.absolute(), bins, job

    def write(self, begun: bool) -> None:
        """Writes them, unless the query has begun: then they must be there, whole and of as many bins.

        Raises UsageError when they are not.
        """
        done = self._folder / DONE
        if begun:
            if _bins_of(done, self._bins) != self._bins:
                raise UsageError(
                    f"The query has no whole initial state in {self._folder}: leave out the initialState if it began "
                    f"without one, else {ADVICE}."
                )
            return
        if self._folder.exists():
            shutil.rmtree(self._folder)
        self._folder.mkdir(parents=True)
        now = time.time_ns() // 1_000_000
        self._job(self._folder)
        replace_bytes(done, json.dumps({"now": now, "bins": self._bins}).encode())


def _bins_of(done: Path, bins: int) -> int:
    """Returns for how many bins a whole initial state is there, `bins` where it does not say so; 0 without one."""
    try:
        data = json.loads(done.read_bytes())
        return int(data.get("bins", bins)) if int(data["now"]) else 0
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return 0


def job_of(frame: DataFrame, key: str, bins: int) -> Callable[[Path], None]:
    """Returns what writes a frame's rows to files by bin; `key` is the grouping key's bytes as SQL."""

    def write(folder: Path) -> None:
        own = [F.col(quoted(name)).alias(f"c{place}") for place, name in enumerate(frame.columns)]
        rows = frame.select(F.expr(key).alias("key"), *own)
        routed = rows.select(F.expr(bin_sql("`key`", bins)).alias("bin"), "*").repartition("bin")
        parts: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]] = partial(_write, str(folder))
        routed.mapInArrow(parts, "bin int").count()

    return write


def _write(folder: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Writes the bins of a task, whose rows are all in it; another attempt writes the same files."""
    found = [batch for batch in batches if len(batch)]
    if not found:
        return
    table = pa.Table.from_batches(found)
    bins = table.column("bin").to_numpy()
    for bin_ in np.unique(bins).tolist():
        path = Path(folder) / f"{bin_}.arrow"
        new = path.with_suffix(f".{os.getpid()}")
        new.write_bytes(to_bytes(table.filter(pa.array(bins == bin_))))
        new.replace(path)
        yield pa.RecordBatch.from_pydict({"bin": pa.array([bin_], pa.int32())})
