"""Key samplers: their frequencies, the permutation of ranks, and what they refuse."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from generators.keys import DriftKeys, Permutation, UniformKeys, ZipfKeys, draw, make_keys, mix
from generators.spec import GeneratorError

DRAWS = 200_000


def test_draws_are_splitmix64_one_step_per_index():
    # first outputs of the published generator from state 0: mix of 1, 2, 3 times the golden gamma
    gamma = np.arange(1, 4, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    assert [hex(v) for v in mix(gamma).tolist()] == ["0xe220a8397b1dcdaf", "0x6e789e6aa1b965f4", "0x6c45d188009454f"]
    assert len(set(draw(1, 0, np.arange(10_000)).tolist())) == 10_000


@pytest.mark.parametrize("keys", [1, 2, 7, 1000])
def test_uniform_keys_are_equally_likely(keys):
    counts = np.bincount(UniformKeys(keys, 5).block(0, DRAWS), minlength=keys)
    assert len(counts) == keys
    assert keys == 1 or chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize("exponent", [0.3, 0.99, 1.0, 1.01, 2.5])
@pytest.mark.parametrize("keys", [1, 2, 3, 1000, 100_003])
def test_zipf_ranks_follow_the_law(keys, exponent):
    ranks = ZipfKeys(keys, exponent, 5).ranks(np.arange(DRAWS))
    law = np.arange(1, keys + 1) ** -exponent
    expected = law / law.sum() * DRAWS
    counts = np.bincount(ranks - 1, minlength=keys)
    assert len(counts) == keys
    # ranks expected fewer than 20 times are tested together, by runs of ranks that expect at least 20
    groups = np.minimum(np.cumsum(expected) // 20, np.ceil(DRAWS / 20) - 2).astype(int)
    observed, wanted = np.bincount(groups, counts), np.bincount(groups, expected)
    used = wanted > 0
    assert used.sum() == 1 or chisquare(observed[used], wanted[used]).pvalue > 1e-4


@pytest.mark.parametrize("exponent", [0.5, 1.0, 1.2])
def test_many_keys_follow_the_law_too(exponent):
    keys = 10_000_000
    ranks = ZipfKeys(keys, exponent, 9).ranks(np.arange(DRAWS))
    law = np.arange(1, keys + 1, dtype=np.float64) ** -exponent
    cumulative = np.cumsum(law) / law.sum()
    edges = np.unique(np.geomspace(1, keys, 40).astype(np.int64))
    shares = np.diff(cumulative[edges - 1])
    observed = np.diff(np.searchsorted(np.sort(ranks), edges, side="right"))
    spread = np.sqrt(DRAWS * shares * (1 - shares)) + 1
    assert np.abs(observed - shares * DRAWS).max() < (4.5 * spread).max()
    assert (np.abs(observed - shares * DRAWS) < 4.5 * spread).all()


def test_zipf_keys_are_permuted_ranks_and_spread():
    sampler = ZipfKeys(4_000_000, 1.0, 3)
    index = np.arange(10_000)
    keys, ranks = sampler.at(index), sampler.ranks(index)
    assert len(np.unique(keys)) == len(np.unique(ranks))
    hottest = Permutation(4_000_000, 3)(np.arange(64))
    assert len(np.unique(hottest // (4_000_000 // 256))) > 40  # of 256 bins


@given(size=st.integers(1, 5000), seed=st.integers(-(2**70), 2**70))
def test_the_permutation_is_a_bijection_of_any_size(size, seed):
    assert np.sort(Permutation(size, seed)(np.arange(size))).tolist() == list(range(size))


@pytest.mark.parametrize("size", [2**20 - 1, 2**20, 2**20 + 1])
def test_the_permutation_is_a_bijection_around_a_power_of_two(size):
    assert len(np.unique(Permutation(size, 1)(np.arange(size)))) == size


def test_the_hot_set_gets_its_share_and_drifts_at_its_speed():
    sampler = DriftKeys(10_000, hot=100, share=0.8, speed=250, seed=5)
    index = np.arange(DRAWS)
    behind = (sampler.at(index) - sampler.starts(index)) % 10_000  # of the hot set's first key
    assert abs((behind < 100).mean() - 0.8) < 4.5 * (0.8 * 0.2 / DRAWS) ** 0.5
    assert chisquare(np.bincount(behind[behind < 100])).pvalue > 1e-4
    assert chisquare(np.bincount(behind[behind >= 100] // 100)[1:]).pvalue > 1e-4
    assert (sampler.starts(np.array([4000, 40_000])) - sampler.starts(np.array([0]))).tolist() == [
        1000,
        10_000 - 10_000,
    ]
    assert sampler.starts(np.array([3]))[0] == sampler.starts(np.array([0]))[0]


def test_a_hot_set_may_have_all_records_and_stand_still():
    sampler = make_keys("drift:keys=7,share=1,speed=0", 1000, 1.0, 3)
    assert len(np.unique(sampler.block(0, 5000))) == 7
    assert make_keys("drift", 1000, 1.0, 3).hot == 10


def test_the_seed_changes_keys():
    samplers = ("uniform", "zipf", "drift")
    for make in [lambda seed, name=name: make_keys(name, 1000, 1.0, seed) for name in samplers]:
        assert make(1).block(0, 100).tolist() == make(1).block(0, 100).tolist()
        assert make(1).block(0, 100).tolist() != make(2).block(0, 100).tolist()


@pytest.mark.parametrize(
    ("distribution", "keys", "exponent", "says"),
    [
        ("normal", 10, 1.0, "use one of uniform, zipf, drift"),
        ("uniform", 0, 1.0, "number of keys"),
        ("zipf", 2**41, 1.0, "number of keys"),
        ("zipf", 10, 0.0, "exponent"),
        ("zipf", 10, -1.0, "exponent"),
        ("zipf", 10, math.nan, "exponent"),
        ("zipf", 10, math.inf, "exponent"),
        ("uniform:keys=3", 10, 1.0, "it takes none"),
        ("drift:size=3", 10, 1.0, "it takes keys, share, speed"),
        ("drift:keys=10", 10, 1.0, "from 1 key to one less than all 10"),
        ("drift:keys=2.5", 10, 1.0, "whole number"),
        ("drift", 1, 1.0, "from 1 key"),
        ("drift:share=0", 10, 1.0, "share of the records"),
        ("drift:share=1.1", 10, 1.0, "share of the records"),
        ("drift:speed=-1", 10, 1.0, "keys per 1,000 records"),
    ],
)
def test_what_cannot_be_sampled_is_refused(distribution, keys, exponent, says):
    with pytest.raises(GeneratorError, match=says):
        make_keys(distribution, keys, exponent, 1)
