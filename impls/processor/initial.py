"""Initial state in files, one for each bin: Spark routes its rows as it does records, and bins are created of them."""

import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from impls.processor.operator import InitialState
from impls.store.hashing import bin_sql
from impls.store.records import to_bytes

__all__ = ["initial_state"]

_DONE = "done.json"


def initial_state(
    frame: DataFrame, places: tuple[int, ...], key: str, bins: int, *, folder: Path, now: int
) -> InitialState:
    """Writes a frame's rows to files, unless that was done when the checkpoint was made, and says where they are.

    Args:
        frame: the initial state.
        places: which of its columns are the grouping key.
        key: the grouping key's bytes as SQL.
        bins: number of bins.
        folder: of the files, which all hosts must see.
        now: processing time, ms.
    """
    done = folder / _DONE
    if not done.exists():
        folder.mkdir(parents=True, exist_ok=True)
        own = [F.col(f"`{name}`").alias(f"c{place}") for place, name in enumerate(frame.columns)]
        rows = frame.select(F.expr(key).alias("key"), *own)
        routed = rows.select(F.expr(bin_sql("`key`", bins)).alias("bin"), "*").repartition("bin")
        write: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]] = partial(_write, str(folder.absolute()))
        routed.mapInArrow(write, "bin int").count()
        done.write_text(json.dumps({"now": now}))
    written = int(json.loads(done.read_text())["now"])
    return InitialState(str(folder.absolute()), written, tuple(frame.columns), places)


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
