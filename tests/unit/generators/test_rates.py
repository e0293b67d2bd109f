"""Schedules: exact times, and both functions agreeing with each other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from generators.producer import RATE_MAX, check_peak
from generators.rates import ConstantRate
from generators.spec import GeneratorError

RATES = st.integers(1, 2_000_000)


@given(rate=RATES, first=st.integers(0, 10**9), count=st.integers(0, 50))
def test_times_are_exact(rate, first, count):
    assert ConstantRate(rate).times_us(first, count).tolist() == [
        i * 1_000_000 // rate for i in range(first, first + count)
    ]


@given(rate=RATES, offset_us=st.integers(-5_000_000, 10**13))
def test_records_until_counts_what_is_scheduled_by_then(rate, offset_us):
    schedule = ConstantRate(rate)
    count = schedule.records_until(offset_us)
    assert count >= 0
    assert schedule.times_us(count, 1)[0] > offset_us
    assert count == 0 or schedule.times_us(count - 1, 1)[0] <= offset_us


def test_the_first_record_is_due_at_the_start():
    assert [ConstantRate(10).records_until(at) for at in (-1, 0, 99_999, 100_000)] == [0, 1, 1, 2]


@pytest.mark.parametrize("rate", [0, -1, 0.5, RATE_MAX + 1])
def test_rates_no_producer_can_follow_are_refused(rate):
    with pytest.raises(GeneratorError, match="rate"):
        check_peak(ConstantRate(rate))


def test_the_highest_rate_is_allowed():
    check_peak(ConstantRate(RATE_MAX))
    check_peak(ConstantRate(1))
