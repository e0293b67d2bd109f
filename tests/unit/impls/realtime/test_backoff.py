from hypothesis import given
from hypothesis import strategies as st

from impls.realtime.flow import Backoff, cpu_wait_s


class Waiting:
    """How long a thread has waited for a CPU, as the test says."""

    def __init__(self):
        self.s = 100.0

    def __call__(self):
        return self.s


def test_a_worker_backs_off_as_long_as_it_has_waited_for_a_cpu():
    waiting = Waiting()
    backoff = Backoff(waiting, most_s=0.5)
    assert backoff.left_s(0.0) == 0.0
    waiting.s += 0.25
    backoff.begin(8.0)
    assert [backoff.left_s(now) for now in (8.0, 8.125, 8.25, 9.0)] == [0.25, 0.125, 0.0, 0.0]


def test_what_a_worker_has_waited_counts_once():
    waiting = Waiting()
    backoff = Backoff(waiting, most_s=0.5)
    waiting.s += 0.25
    backoff.begin(8.0)
    backoff.begin(9.0)
    assert backoff.left_s(9.0) == 0.0


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10)), max_size=20))
def test_no_backoff_is_longer_than_the_bound(steps):
    waiting, now = Waiting(), 0.0
    backoff = Backoff(waiting, most_s=0.5)
    for waited, passed in steps:
        waiting.s, now = waiting.s + waited, now + passed
        backoff.begin(now)
        assert 0.0 <= backoff.left_s(now) <= 0.5 + 1e-9


def test_a_system_that_does_not_tell_is_taken_for_one_of_no_waiting(monkeypatch, tmp_path):
    monkeypatch.setattr("impls.realtime.flow._STATISTICS", tmp_path / "none")
    assert cpu_wait_s() == 0.0
    (tmp_path / "none").write_text("1 x\n")
    assert cpu_wait_s() == 0.0
