"""How far routers are let ahead of workers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from impls.realtime.flow import Flow, Pace


@pytest.fixture
def flow(tmp_path):
    return Flow.create(tmp_path / "flow", 3)


def test_what_is_sent_takes_room_and_what_is_applied_gives_it_back(flow, tmp_path):
    begin = flow.room()
    other = Flow(tmp_path / "flow", 3)
    flow.sent(0, np.array([10, 0, 5]))
    other.sent(7, np.array([1, 2, 0]))
    assert (begin - flow.room()).tolist() == [11, 2, 5]
    other.applied(0, 11, 1000)
    assert flow.room().tolist() == [1000, begin[1] - 2, begin[2] - 5]


def test_routers_beyond_the_last_column_are_not_counted(flow):
    begin = flow.room()
    flow.sent(5_000, np.array([10, 0, 5]))
    assert (flow.room() == begin).all()


def test_a_worker_is_given_a_quarter_of_a_second_of_records():
    pace = Pace()
    pace.took(1000, 1.0)
    assert pace.window == 250
    pace.took(0, 5.0)
    assert (pace.window, pace.applied) == (250, 1000)
    pace.took(4000, 1.0)
    assert pace.window == 1000
    pace.took(1, 0.01)  # a small turn pays for more than its record
    assert 250 < pace.window < 1000


@given(st.lists(st.tuples(st.integers(0, 10_000), st.floats(0, 100)), max_size=20))
def test_the_window_is_never_closed_nor_without_end(turns):
    pace = Pace()
    for records, seconds in turns:
        pace.took(records, seconds)
        assert 64 <= pace.window <= 1 << 20
    assert pace.applied == sum(records for records, _ in turns)
