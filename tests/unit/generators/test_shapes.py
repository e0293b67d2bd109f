"""Rate shapes: what they come to, that both functions of a schedule agree, and what they refuse."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from generators.producer import RATE_MAX, check_peak
from generators.rates import ConstantRate, SteppedRate, csv_path, make_schedule
from generators.spec import GeneratorError

SHAPES = ("step", "step:1=0,2=3.5", "sine", "sine:amplitude=1,period=2", "spike", "spike:at=0,rise=0,factor=3,decay=1")
PIECES = st.lists(st.tuples(st.integers(0, 3_000_000), st.integers(0, 50_000)), min_size=1, max_size=6)


def per_second(schedule, seconds):
    counts = [schedule.records_until(second * 1_000_000 - 1) for second in range(seconds + 1)]
    return np.diff(counts).tolist()


def by_definition(pieces, count, lead, repeat):
    """Times of the first records, piece by piece in rational arithmetic."""
    times, due, begin = [], 0, 0
    for length, rate in itertools.chain([lead], itertools.cycle(pieces) if repeat else [*pieces[:-1]]):
        end = due + length * rate
        while len(times) < count and len(times) * 1_000_000 < end:
            times.append(begin + (len(times) * 1_000_000 - due) // rate)
        due, begin = end, begin + length
        if len(times) == count:
            return times
    rate = pieces[-1][1]
    return times + [begin + (i * 1_000_000 - due) // rate for i in range(len(times), count)]


@given(pieces=PIECES, lead=st.tuples(st.integers(0, 2_000_000), st.integers(0, 5000)), repeat=st.booleans())
def test_times_are_those_of_the_definition(pieces, lead, repeat):
    pieces = [*pieces, (1_000_000, 7)]
    schedule = SteppedRate(*zip(*pieces, strict=True), lead_us=lead[0], lead_rate=lead[1], repeat=repeat)
    assert schedule.times_us(0, 300).tolist() == by_definition(pieces, 300, lead, repeat)
    assert schedule.peak == max(rate for _, rate in (*pieces, lead))


@given(shape=st.sampled_from(SHAPES), rate=st.integers(1, 100_000), lead=st.integers(0, 5), first=st.integers(0, 10**7))
def test_both_functions_agree_and_any_split_gives_the_same_times(shape, rate, lead, first):
    schedule = make_schedule(shape, rate, lead)
    times = schedule.times_us(first, 50)
    assert (np.diff(times) >= 0).all()
    assert [int(schedule.times_us(first + i, 1)[0]) for i in (0, 17, 49)] == times[[0, 17, 49]].tolist()
    for at_us in (int(times[20]), int(times[20]) - 1):
        count = schedule.records_until(at_us)
        assert schedule.times_us(count, 1)[0] > at_us
        assert count == 0 or schedule.times_us(count - 1, 1)[0] <= at_us
    assert schedule.records_until(-1) == 0


def test_a_step_holds_from_its_time_on_behind_the_lead_in():
    schedule = make_schedule("step:2=5,4=50,5=1", 1000, 1.0)
    assert per_second(schedule, 8) == [1000, 1000, 1000, 5000, 5000, 50_000, 1000, 1000]
    assert schedule.peak == 50_000


def test_a_step_may_begin_at_once_and_the_default_is_5x_and_50x():
    assert per_second(make_schedule("step:0=2", 1000), 2) == [2000, 2000]
    assert make_schedule("step", 1000).peak == 50_000


def test_a_sine_is_repeated_and_keeps_its_mean():
    schedule = make_schedule("sine:amplitude=0.5,period=8", 10_000, 2.0)
    counts = per_second(schedule, 26)
    assert counts[:2] == [10_000, 10_000]
    assert counts[2:10] == counts[10:18] == counts[18:26]
    assert sum(counts[2:10]) == pytest.approx(80_000, abs=2)
    assert max(counts) == counts[3] == pytest.approx(14_500, rel=0.01)
    assert schedule.peak == 15_000


def test_a_spike_rises_tenfold_in_2_s_and_decays_exponentially():
    schedule = make_schedule("spike:at=3,decay=2", 1000)
    counts = per_second(schedule, 60)
    assert counts[:3] == [1000] * 3
    assert sum(counts[3:5]) == pytest.approx(11_000, abs=2)
    for second in (5, 9):
        area = 9000 * 2 * (math.exp(-(second - 5) / 2) - math.exp(-(second - 4) / 2))
        assert counts[second] == pytest.approx(1000 + area, abs=2)
    assert counts[40:] == [1000] * 20
    assert 9_950 < schedule.peak <= 10_000  # the pieces of 10 ms beside the top


def test_a_file_is_replayed_in_lines_or_in_steps(tmp_path):
    path = tmp_path / "rates.csv"
    path.write_text("time_s,rate\n0,1000\n2,3000\n\n4,0\n5,500.5\n")
    joined, held = make_schedule(f"csv:{path}", 1, 1.0), make_schedule(f"csv-steps:{path}", 1)
    assert per_second(joined, 5) == pytest.approx([1002, 1500, 2500, 2250, 750], abs=3)
    assert joined.times_us(10**6, 1)[0] == pytest.approx((10**6 - 8253) / 500.5 * 1e6 + 6e6, rel=1e-5)
    assert per_second(held, 7) == [1000, 1000, 3000, 3000, 0, 501, 500]
    assert held.times_us(8000, 1).tolist() == [5_000_000]
    assert (csv_path(f"csv-steps:{path}"), csv_path("step:1=2")) == (path, None)


def test_a_file_of_one_line_is_a_constant_rate(tmp_path):
    (tmp_path / "one.csv").write_text("10,70")
    for shape in ("csv", "csv-steps"):
        schedule = make_schedule(f"{shape}:{tmp_path / 'one.csv'}", 1)
        assert schedule.times_us(0, 500).tolist() == ConstantRate(70).times_us(0, 500).tolist()


def test_a_long_curve_has_few_pieces():
    schedule = make_schedule("sine:period=86400", 1000)
    assert schedule.records_until(86_400_000_000 - 1) == pytest.approx(86_400_000, abs=500)


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ("square", "use one of constant, step, sine, spike, csv, csv-steps"),
        ("constant:at=3", "it takes none"),
        ("sine:speed=3", "it takes amplitude, period"),
        ("sine:amplitude=2", "amplitude must be from 0 to 1"),
        ("sine:period=0", "period must be"),
        ("sine:period", "given as NAME=NUMBER, not 'period'"),
        ("spike:factor=nan", "NAME=NUMBER"),
        ("spike:factor=0.5", "factor must be from 1"),
        ("spike:decay=0", "decay"),
        ("step:soon=5", "SECONDS=FACTOR, not soon=5"),
        ("step:5=2,5=3", "must ascend"),
        ("step:5=0", "last rate"),
        ("step:-1=2", "time of a step"),
        ("csv:no-such-file.csv", "no-such-file.csv cannot be read"),
        ("csv:", "cannot be read"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(shape, says):
    with pytest.raises(GeneratorError, match=says):
        make_schedule(shape, 1000)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds no line"),
        ("time_s,rate\n", "holds no line"),
        ("0,1\nx,2", "line 2: expected"),
        ("0,1\n1", "line 2: expected"),
        ("0,1\n1,-2", "line 2: expected"),
        ("0,1\n1,inf", "line 2: expected"),
        ("1,1\n\n1,2", "line 3: the time 1 does not lie behind"),
        ("0,5\n1,0", "last rate holds on"),
        ("0,1e6\n80000000,1e6", "more than 9e9 records"),
    ],
)
def test_a_file_that_cannot_be_replayed_is_named_with_its_line(tmp_path, text, says):
    (tmp_path / "rates.csv").write_text(text)
    with pytest.raises(GeneratorError, match=says):
        make_schedule(f"csv-steps:{tmp_path / 'rates.csv'}", 1)


def test_a_lead_in_that_cannot_be_and_a_peak_beyond_the_producer_are_refused():
    with pytest.raises(GeneratorError, match="lead-in"):
        make_schedule("sine", 1000, -1)
    with pytest.raises(GeneratorError, match=f"at most {RATE_MAX} records per second, not 1500000"):
        check_peak(make_schedule("step:1=50", 30_000))
    check_peak(make_schedule("step:1=50", 30_000), producers=2)
