"""What bins have stored of the input they have applied, read from the workers' environments without their code.

An environment is an LMDB folder `worker-NNNN`. Next offsets are in table 7: the key is the byte 7, the bin (2 bytes)
and the partition (4 bytes), the value the next offset (8 bytes) and a checksum (4 bytes); numbers are big-endian.
"""

import struct
from collections.abc import Iterator
from pathlib import Path

import lmdb
import numpy as np
from numpy.typing import NDArray

from harness.oracle.columns import NextOffsets, OracleError

__all__ = ["read_next_offsets"]

_TABLE = 7
_KEY, _VALUE = struct.Struct(">BHI"), struct.Struct(">QI")


def read_next_offsets(state: Path, owners: NDArray[np.int64]) -> NextOffsets:
    """Returns the next offsets of every bin as its owner has them.

    Args:
        state: folder of the workers' environments; nobody writes there any more.
        owners: the worker of each bin.

    Raises:
        OracleError: an environment is missing, or holds what is no next offset.
    """
    rows = [
        (bin_, partition, after, worker)
        for worker in np.unique(owners).tolist()
        for bin_, partition, after in _stored(state / f"worker-{worker:04d}")
        if bin_ < len(owners) and owners[bin_] == worker
    ]
    return NextOffsets.of(rows)


def _stored(folder: Path) -> Iterator[tuple[int, int, int]]:
    if not (folder / "data.mdb").exists():
        raise OracleError(f"The environment {folder} is not there.")
    with lmdb.open(str(folder), readonly=True, lock=False) as env, env.begin() as txn:
        cursor = txn.cursor()
        alive = cursor.set_range(bytes([_TABLE]))
        while alive and cursor.key()[0] == _TABLE:
            try:
                (_, bin_, partition), (after, _) = _KEY.unpack(cursor.key()), _VALUE.unpack(cursor.value())
            except struct.error as error:
                raise OracleError(f"The environment {folder} holds a next offset of another form: {error}.") from error
            yield bin_, partition, after
            alive = cursor.next()
