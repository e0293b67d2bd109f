"""An epoch that routes a bin away and does not pull it fails at any point: each record still counts once, and in order.

Bin 2 is at worker 1 and routed to worker 0. The router has sent offset 10 by the routing before, 11 by the new one.
Everything is started again from what is needed, and the records come again by the new routing.
"""

import itertools

import pytest
from real_worlds import BIN, NEW, OLD, World, blob, order

from impls.protocol.plan import Pull

NOT_PULLED = {"held": {"hold": (BIN,)}, "beyond the budget": {"on_demand": True, "budget_bytes": 0}}
# who goes on until it waits, between the switch and the failure; "late" is the blob that the old owner has not read
POINTS = [point for size in range(4) for point in itertools.permutations(("new", "old", "late"), size)]


@pytest.mark.parametrize("point", POINTS, ids="-".join)
@pytest.mark.parametrize("plan", NOT_PULLED.values(), ids=list(NOT_PULLED))
def test_each_record_counts_once_wherever_the_epoch_fails(tmp_path, plan, point):
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
