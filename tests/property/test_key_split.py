"""Any split of a stream, among blocks, processes or restarts, gives the same records."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from sent import check_shares_and_restarts, splits

from generators.keys import make_keys
from generators.rates import make_schedule
from generators.stream import Stream

SAMPLERS = st.builds(
    make_keys,
    st.sampled_from(["uniform", "zipf", "drift", "drift:share=0.5,speed=1000000"]),
    st.integers(2, 10**9),
    st.floats(0.1, 3.0),
    st.integers(0, 2**64 - 1),
)


@given(sampler=SAMPLERS, first=st.integers(0, 10**10), cuts=st.lists(st.integers(0, 300), max_size=6))
def test_any_split_into_blocks_gives_the_same_keys(sampler, first, cuts):
    whole = sampler.block(first, 300)
    edges = sorted({0, 300, *cuts})
    parts = [sampler.block(first + a, b - a) for a, b in itertools.pairwise(edges)]
    assert np.concatenate(parts).tolist() == whole.tolist()
    assert whole.min() >= 0
    assert whole.max() < sampler.keys


@given(sampler=SAMPLERS, index=st.lists(st.integers(0, 10**10), min_size=1, max_size=50))
def test_a_key_depends_on_its_record_alone(sampler, index):
    assert sampler.at(np.array(index)).tolist() == [int(sampler.block(i, 1)[0]) for i in index]


@given(
    sampler=SAMPLERS, split=splits(), records=st.integers(0, 400), rate=st.integers(1, 10**4),
    shape=st.sampled_from(["constant", "step:0.01=50", "sine:period=0.1"]), data=st.data(),
)  # fmt: skip
def test_shares_and_restarts_together_send_the_stream_once(sampler, split, records, rate, shape, data):
    stream = Stream(sampler, make_schedule(shape, rate, 0.01), 1_700_000_000_000_000, records)
    check_shares_and_restarts(stream, records, split, data)
