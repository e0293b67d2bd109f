"""How far routers are let ahead of workers."""

from hypothesis import given
from hypothesis import strategies as st

from impls.realtime.flow import Pace


def test_a_worker_is_given_a_quarter_of_a_second_of_records():
    pace = Pace()
    pace.took(1000, 1.0)
    assert pace.window == 250
    pace.took(0, 5.0)
    assert (pace.window, pace.applied) == (250, 1000)
    pace.took(4000, 1.0)
    assert pace.window == 1000
    pace.took(1, 0.01)  # a small commit pays for more than its record
    assert 250 < pace.window < 1000


@given(st.lists(st.tuples(st.integers(0, 10_000), st.floats(0, 100)), max_size=20))
def test_the_window_is_never_closed_nor_without_end(commits):
    pace = Pace()
    for records, seconds in commits:
        pace.took(records, seconds)
        assert 64 <= pace.window <= 1 << 20
    assert pace.applied == sum(records for records, _ in commits)
