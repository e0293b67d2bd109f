"""Two workers of real time on one state folder, their driver and router played by a test."""

import numpy as np
import pyarrow as pa

from impls.durability.files import Files
from impls.operators import HashCount
from impls.protocol.order import EpochOrder
from impls.protocol.plan import EpochPlan, WrittenPlan
from impls.protocol.session import Ended, Final, Marks, NewEpoch
from impls.realtime.blobs import Blob
from impls.realtime.worker import RealTimeWorker
from impls.store.hashing import bin_of_hash, hash_int64
from impls.worker.query import QuerySpec
from impls.worker.sinks import Nowhere

BINS, BIN = 4, 2
KEY = next(key for key in range(1000) if bin_of_hash(hash_int64(np.array([key])), BINS)[0] == BIN)
OLD, NEW = np.array([0, 0, 1, 1], np.int32), np.array([0, 0, 0, 1], np.int32)
STEPS = 10


class Counts(Nowhere):
    """Counts that were sent, by their numbers."""

    def __init__(self):
        self.sent = {}

    def send(self, results, *, worker, epoch, first, **_):
        for index, value in enumerate(results.payloads, first):
            self.sent[epoch, worker, index] = int.from_bytes(value, "little")


class World:
    """Two workers, started again and again on the same state."""

    def __init__(self, folder):
        files = Files(str(folder / "checkpoint"))
        files.make_folders(["log", "snapshots"])
        self.counts, self.said = Counts(), []
        self.spec = QuerySpec("q", BINS, HashCount(), self.counts, str(folder / "state"), files, repeats=True)
        self.start()

    def start(self):
        self.said.clear()
        self.workers = [RealTimeWorker(self.spec, w, batch=0, say=self.said.append) for w in (0, 1)]

    def fail(self):
        for worker in self.workers:
            worker.close()
        self.start()

    def begin(self, order, marks, settled=False):
        for w, worker in enumerate(self.workers):
            worker.hear(NewEpoch(order))
            worker.hear(Marks(order.written.epoch, ((0, marks[w]),), settled=settled))

    def step(self, *workers):
        for w in workers:
            for _ in range(STEPS):
                if not self.workers[w].step():
                    break

    def ended(self, epoch):
        return {m.worker for m in self.said if isinstance(m, Ended) and m.epoch == epoch}

    def finals(self, epoch):
        for worker in self.workers:
            for w in (0, 1):
                worker.hear(Final(epoch, w))


def order(epoch, routing, **plan):
    away = tuple((bin_, int(OLD[bin_])) for bin_ in range(BINS) if OLD[bin_] != routing[bin_])
    pulls = tuple((pull.bin, 1 << 20) for pull in plan.get("pulls", ()))
    written = WrittenPlan(epoch, 1, 2, EpochPlan(routing, **plan))
    return EpochOrder(written, first=epoch == 0, elsewhere=away, sizes=pulls)


def blob(number, epoch, offsets):
    kinds = {"bin": pa.int32(), "partition": pa.int64(), "offset": pa.int64(), "time": pa.int64(), "key": pa.int64()}
    rows = {"bin": BIN, "partition": 0, "time": None, "key": KEY}
    columns = {name: pa.array([rows.get(name, at) for at in offsets], kind) for name, kind in kinds.items()}
    return Blob(0, number, epoch, pa.table(columns))
