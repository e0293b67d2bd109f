"""Any split of a stream, among blocks, processes or restarts, gives the same records."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from generators.keys import make_keys
from generators.shapes import make_schedule
from generators.stream import Share, Stream

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


@st.composite
def splits(draw):
    partitions = draw(st.integers(1, 12))
    of = draw(st.sampled_from([n for n in range(1, partitions + 1) if partitions % n == 0]))
    return partitions, of, draw(st.integers(0, 400)), draw(st.integers(1, 130)), draw(st.integers(1, 10**4))


def sent(stream, share, done, size):
    """Records by partition, with their scheduled times."""
    out = {p: [] for p in share.own_partitions()}
    for block in stream.blocks(share, done, size):
        assert 0 < len(block.values) <= size
        for value, partition, at in zip(block.values, block.partitions, block.scheduled_us.tolist(), strict=True):
            out[partition].append((value, at))
    return out


@given(sampler=SAMPLERS, split=splits(), data=st.data())
def test_shares_and_restarts_together_send_the_stream_once(sampler, split, data):
    partitions, of, records, size, rate = split
    schedule = make_schedule(data.draw(st.sampled_from(["constant", "step:0.01=50", "sine:period=0.1"])), rate, 0.01)
    stream = Stream(sampler, schedule, 1_700_000_000_000_000, records)
    whole = sent(stream, Share(0, 1, partitions), [0] * partitions, 1000)
    assert sum(len(part) for part in whole.values()) == records
    for number in range(of):
        share = Share(number, of, partitions)
        done = [
            data.draw(st.integers(0, len(whole[p]))) if p in share.own_partitions() else 0 for p in range(partitions)
        ]
        rest = sent(stream, share, done, size)
        assert rest == {p: whole[p][done[p] :] for p in share.own_partitions()}
        assert stream.due(share, done, 2**62) == sum(len(part) for part in rest.values())
