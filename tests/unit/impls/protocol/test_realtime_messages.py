"""Messages of the real-time mode travel by pickle and come out equal."""

import pickle
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from impls.protocol.order import EpochOrder
from impls.protocol.plan import EpochPlan, WrittenPlan
from impls.protocol.session import Closed, Due, Ended, Failed, Final, Hello, Marks, NewEpoch, Route, Routed, Watermark

ROUTING = np.array([0, 1, 1, 0], np.int32)
MESSAGES = [
    Hello("router", 1, 2, "a1b2", 7, 4711),
    Routed(3, (5, 0), ((0, 17),)),
    Marks(3, ((0, 5), (1, 0)), settled=True),
    Final(3, 1, ((0, 500), (1, -7))),
    Watermark(3, 500),
    Ended(3, 1, b"{}", b"", 17),
    Due(1),
    Due(1, 500),
    Closed(1),
    Failed("worker", 0, "StateError", "no state"),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_is_equal_after_its_way(message: Any):
    assert pickle.loads(pickle.dumps(message)) == message


@pytest.mark.parametrize("message", [Route(3, ROUTING), NewEpoch(EpochOrder(WrittenPlan(3, 0, 2, EpochPlan(ROUTING))))])
def test_a_message_with_a_routing_keeps_it(message: Any):
    arrived = pickle.loads(pickle.dumps(message))
    kept = arrived.routing if isinstance(arrived, Route) else arrived.order.written.plan.routing
    assert type(arrived) is type(message)
    assert [f.name for f in fields(arrived)] == [f.name for f in fields(message)]
    np.testing.assert_array_equal(kept, ROUTING)
