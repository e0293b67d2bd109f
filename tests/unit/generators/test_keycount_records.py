"""The record layout, golden digests of whole streams, shares, and the lag histogram."""

import numpy as np
import pytest
from decoding import decode_block
from digests import keycount_digest
from hdrh.histogram import HdrHistogram

from generators.keys import make_keys
from generators.openloop import LagHistogram
from generators.rates import ConstantRate, make_schedule
from generators.spec import GeneratorError
from generators.stream import Share, Stream, keycount_values

# a digest that moves means that streams made before and after are different workloads under one name
GOLDEN = {
    ("uniform", 1): "8cb499ef8cbd264d1d0aa0007c81492e3f8e9477895b9a72daded609c47386a4",
    ("uniform", 2): "f0cb40d83275c3e34c8473c11e210a2199fb105f39bf494cec535609291dc2f9",
    ("uniform", 18446744073709551615): "ebd73b42df93ac95a3921daf51ed7469e6f35d0203aa273bee14122419ff2142",
    ("zipf", 1): "00135c2c67bd0c5dddd80af3ceec3ac178b8b30dec763203e4ca80c2fc3f92f9",
    ("zipf", 2): "6c7f7c1ac1b2d9762a635e2aab41447e46819131f679efe464879937a62819c6",
    ("zipf", 18446744073709551615): "1fb72e78fc038e614d8bd340cf385f813529fd1d28b8e9f63db6f832c9e300dd",
    ("drift:share=0.8,speed=5000", 1): "96b1daa1c85db5844b923f4218237978d5f984ab0e458f2e2d8fc1d2196e7f11",
    ("drift:share=0.8,speed=5000", 2): "e953e968e64578bba734a0446e0a4ae8e6a93c3242b11e681a5b142f685e4740",
}
GOLDEN_SHAPES = {
    "step:1=5,2=50": "eb3b1976c18261a0c5efe27e059b838d0cdc02bf96f1e20bf89a8bfad2c6ac5e",
    "sine:period=7": "c99e30e6e04a13d2d55ac4be219cedbea5e234c26c95e121906f0c7f96fcdacc",
    "spike:at=1": "b46187b5f14db17491255678334dbffed8e4457390ec7490a303aad667d9d4e0",
}


@pytest.mark.parametrize(("distribution", "seed"), GOLDEN)
def test_a_stream_is_the_same_forever(distribution, seed):
    sampler = make_keys(distribution, 4_000_000, 1.1, seed)
    assert keycount_digest(sampler, ConstantRate(10_000), 100_000) == GOLDEN[distribution, seed]


@pytest.mark.parametrize("shape", GOLDEN_SHAPES)
def test_a_shaped_stream_is_the_same_forever(shape):
    sampler = make_keys("uniform", 4_000_000, 1.1, 1)
    assert keycount_digest(sampler, make_schedule(shape, 10_000, 1.0), 100_000) == GOLDEN_SHAPES[shape]


def test_records_are_two_numbers_of_16_digits():
    pairs = [(0, 10), (123_456_789, 20), (10**16 - 1, 1_795_271_384_722_149)]
    values = keycount_values(*np.array(pairs).T)
    assert values == [b"%016d%016d" % pair for pair in pairs]
    keys, times = decode_block(values)
    assert list(zip(keys.tolist(), times.tolist(), strict=True)) == pairs


@pytest.mark.parametrize("number", [-1, 10**16])
def test_a_number_that_does_not_fit_is_refused(number):
    with pytest.raises(GeneratorError, match="numbers from 0 to"):
        keycount_values(np.array([1, number]), np.array([1, 2]))


def test_no_records_are_fine():
    assert keycount_values(np.empty(0, np.int64), np.empty(0, np.int64)) == []
    assert [len(part) for part in decode_block([])] == [0, 0]


def test_another_layout_is_refused():
    with pytest.raises(GeneratorError, match="not 15"):
        decode_block([b"0" * 32, bytes(15)])
    with pytest.raises(GeneratorError, match="digits alone"):
        decode_block([b"0" * 32, b"0" * 31 + b"x"])


def test_records_go_round_the_partitions():
    stream = Stream(make_keys("uniform", 10, 1.0, 1), ConstantRate(10), 0, 5)
    assert [p for block in stream.blocks(Share(0, 1, 3), [0] * 3, 2) for p in block.partitions] == [0, 1, 2, 0, 1]


def test_scheduled_times_start_at_the_start():
    stream = Stream(make_keys("uniform", 10, 1.0, 1), ConstantRate(1000), 5_000_000, 100)
    block = next(stream.blocks(Share(0, 1, 2), [0, 0], 100))
    assert decode_block(block.values)[1].tolist() == [5_000_000 + 1000 * i for i in range(100)]
    assert block.scheduled_us.tolist() == decode_block(block.values)[1].tolist()
    assert stream.record(7) == block.values[7]
    assert [stream.records_left(Share(0, 1, 2), [3, 3], at) for at in (0, 5_000_000, 5_009_999, 6_000_000)] == [
        0,
        0,
        4,
        94,
    ]


@pytest.mark.parametrize(
    ("text", "partitions"),
    [("1/1", 2), ("0/3", 2), ("0/4", 2), ("a/2", 2), ("1", 2), ("-1/2", 2), ("0/0", 2), ("0/1", 0)],
)
def test_shares_that_would_mix_partitions_are_refused(text, partitions):
    with pytest.raises(GeneratorError):
        Share.parse(text, partitions)


def test_shares_own_partitions_alone():
    assert [list(Share.parse(f"{i}/2", 4).own_partitions()) for i in range(2)] == [[0, 2], [1, 3]]


def test_lags_are_counted_as_an_hdr_histogram_counts_them():
    lags = np.concatenate((np.arange(5000), np.random.default_rng(1).integers(0, 3_600_000_000, 5000)))
    lag, one_by_one = LagHistogram(), HdrHistogram(1, 3_600_000_000, 3)
    for part in np.array_split(lags, 7):
        lag.record(part)
    for value in lags.tolist():
        one_by_one.record_value(value)
    points = (0.1, 25, 50, 75, 99, 99.9, 100)
    assert [lag.histogram().get_value_at_percentile(p) for p in points] == [
        one_by_one.get_value_at_percentile(p) for p in points
    ]
    assert lag.histogram().get_total_count() == 10_000
    assert lag.summary_ms()["max"] == lags.max() / 1000


def test_lags_out_of_range_are_counted_and_reported(tmp_path):
    lag = LagHistogram(keep=True)
    lag.record(np.array([-5, 10, 3_600_000_001]))
    assert (lag.early, lag.refused, lag.histogram().get_total_count()) == (1, 1, 3)
    lag.save(tmp_path / "lag.npy")
    assert np.load(tmp_path / "lag.npy").tolist() == [-5, 10, 3_600_000_001]


def test_no_lag_is_all_zero():
    assert LagHistogram().summary_ms() == {"p50": 0.0, "p99": 0.0, "p999": 0.0, "max": 0.0}
