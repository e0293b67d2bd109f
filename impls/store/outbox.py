"""Results in their stored form, as they wait in the environment to be sent."""

import numpy as np
import pyarrow as pa

from impls.store.records import Results, from_bytes, to_bytes

__all__ = ["pack", "unpack"]


def pack(results: Results) -> bytes:
    """Returns results in their stored form."""
    columns = {"key": pa.array(results.keys, pa.binary()), "value": pa.array(results.payloads, pa.binary())}
    return to_bytes(pa.table({"bin": results.bins, **columns}))


def unpack(raw: bytes) -> Results:
    """Reads what `pack` wrote."""
    table = from_bytes(raw)
    bins = table.column("bin").to_numpy().astype(np.int32)
    return Results(bins, table.column("key").to_pylist(), table.column("value").to_pylist())
