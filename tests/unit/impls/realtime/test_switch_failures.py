"""A tick that routes a bin away and does not pull it fails at any point: each record still counts once, and in order.

Bin 2 is at worker 1 and routed to worker 0. The router has sent offset 10 by the routing before, 11 by the new one.
Everything is started again from what is needed, and the records come again by the new routing.
"""

import itertools

import numpy as np
import pyarrow as pa
import pytest

from impls.durability.files import Files
from impls.operators import HashCount
from impls.protocol.order import EpochOrder
from impls.protocol.plan import EpochPlan, Pull, WrittenPlan
from impls.protocol.session import Ended, Final, Marks, Tick
from impls.realtime.blobs import Blob
from impls.realtime.worker import TurnWorker
from impls.store.hashing import bin_of_hash, hash_int64
from impls.worker.query import QuerySpec
from impls.worker.sinks import Nowhere

BINS, BIN = 4, 2
KEY = next(key for key in range(1000) if bin_of_hash(hash_int64(np.array([key])), BINS)[0] == BIN)
OLD, NEW = np.array([0, 0, 1, 1], np.int32), np.array([0, 0, 0, 1], np.int32)
NOT_PULLED = {"held": {"hold": (BIN,)}, "beyond the budget": {"on_demand": True, "budget_bytes": 0}}
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
        self.spec = QuerySpec("q", BINS, HashCount(), self.counts, str(folder / "state"), files, turns=True)
        self.start()

    def start(self):
        self.said.clear()
        self.workers = [TurnWorker(self.spec, w, batch=0, say=self.said.append) for w in (0, 1)]

    def fail(self):
        for worker in self.workers:
            worker.close()
        self.start()

    def begin(self, order, marks, settled=False):
        for w, worker in enumerate(self.workers):
            worker.hear(Tick(order))
            worker.hear(Marks(order.written.epoch, ((0, marks[w]),), settled=settled))

    def step(self, *workers):
        for w in workers:
            for _ in range(STEPS):
                if not self.workers[w].step():
                    break

    def ended(self, tick):
        return {m.worker for m in self.said if isinstance(m, Ended) and m.tick == tick}

    def finals(self, tick):
        for worker in self.workers:
            for w in (0, 1):
                worker.hear(Final(tick, w))


def order(tick, routing, **plan):
    away = tuple((bin_, int(OLD[bin_])) for bin_ in range(BINS) if OLD[bin_] != routing[bin_])
    pulls = tuple((pull.bin, 1 << 20) for pull in plan.get("pulls", ()))
    written = WrittenPlan(tick, 1, 2, EpochPlan(routing, **plan))
    return EpochOrder(written, first=tick == 0, elsewhere=away, sizes=pulls)


def blob(number, tick, offsets):
    kinds = {"bin": pa.int32(), "partition": pa.int64(), "offset": pa.int64(), "time": pa.int64(), "key": pa.int64()}
    rows = {"bin": BIN, "partition": 0, "time": None, "key": KEY}
    columns = {name: pa.array([rows.get(name, at) for at in offsets], kind) for name, kind in kinds.items()}
    return Blob(0, number, tick, pa.table(columns))


# who goes on until it waits, between the switch and the failure; "late" is the blob that the old owner has not read
POINTS = [point for size in range(4) for point in itertools.permutations(("new", "old", "late"), size)]


@pytest.mark.parametrize("point", POINTS, ids="-".join)
@pytest.mark.parametrize("plan", NOT_PULLED.values(), ids=list(NOT_PULLED))
def test_each_record_counts_once_wherever_the_tick_fails(tmp_path, plan, point):
    world = World(tmp_path)
    world.begin(order(0, OLD), (0, 0), settled=True)
    world.step(0, 1)
    world.workers[1].take([blob(1, 0, [8, 9])])
    world.step(1)
    one = order(1, NEW, **plan)
    world.begin(one, (0, 2))
    world.workers[0].take([blob(1, 1, [11])])
    for what in point:
        if what == "late":
            world.workers[1].take([blob(2, 0, [10])])
        world.step(0 if what == "new" else 1)
    world.fail()
    world.begin(one, (0, 0))
    world.workers[0].take([blob(1, 1, [10, 11, 12])])
    world.step(0, 1)
    assert world.ended(1) == {0, 1}
    world.begin(order(2, NEW, pulls=(Pull(BIN, 1, 0),)), (1, 0))
    world.step(0, 1)
    world.finals(2)
    world.step(0, 1)
    assert world.ended(2) == {0, 1}
    assert max(world.counts.sent.values()) == 5, "offsets 8 to 12 are of one key"
