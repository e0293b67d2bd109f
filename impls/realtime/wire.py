"""What routers in the JVM and the rest of real time agree on.

Python reads these constants here; for Java the class `Wire` is made from `CONSTANTS` where its sources are compiled.
"""

import struct

from impls.errors import StateError
from impls.store.records import ROW

HEADER = struct.Struct("<4sIIIqqqq")
"""Of a blob: magic, bytes of its records, router, nothing, number, epoch, and when its records came and were packed.

Its size is a multiple of 8 bytes, as Arrow reads aligned buffers.
"""
MAGIC = b"RBB1"
COLUMNS = ("bin", "partition", "offset")  # the first ones of a record
APPLIED, WINDOW, SENT = 0, 1, 2  # columns of the file by which routers and workers share how far they are
WORKER_SOCKET = "worker"  # a worker's socket is worker-RUN-BATCH-SLOT, beside the driver's
BATCH_ID = "streaming.sql.batchId"  # Spark's local property of a task

CONSTANTS: dict[str, int | str] = {
    "MAGIC": MAGIC.decode(),
    "HEADER_BYTES": HEADER.size,
    "ROW": ROW,
    **{name.upper(): place for place, name in enumerate(COLUMNS)},
    "APPLIED": APPLIED,
    "WINDOW": WINDOW,
    "SENT": SENT,
    "WORKER_SOCKET": WORKER_SOCKET,
    "BATCH_ID": BATCH_ID,
    "STATE_ERROR": StateError.__name__,
}
"""By the name that Java has for it."""
