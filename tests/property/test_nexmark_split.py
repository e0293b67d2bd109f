"""Any split of a NEXMark stream, among blocks, processes or restarts, gives the same events."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sent import check_shares_and_restarts, sent, splits

from generators.nexmark.profile import make_profile
from generators.nexmark.stream import NexmarkStream
from generators.rates import make_schedule
from generators.stream import Share

START_US = 1_700_000_000_000_000
SHAPES = st.sampled_from(["constant", "step:0.01=50", "sine:period=0.1"])
PROFILES = st.sampled_from(["default", "large-state:auctions=1", "large-state:auctions=40"])
ORDERS = st.sampled_from(["", "group=7,probability=0", "delay=0.05", "group=3,probability=0.6,delay=1"])


@st.composite
def streams(draw):
    rate, out_of_order = draw(st.integers(50, 10_000)), draw(ORDERS)
    profile = make_profile(draw(PROFILES), rate, out_of_order=out_of_order, channels=False)
    return NexmarkStream(
        profile, make_schedule(draw(SHAPES), rate, 0.01), rate, draw(st.integers(0, 2**64 - 1)),
        start_us=START_US, records=draw(st.integers(0, 300)), event_start_us=draw(st.sampled_from([None, 10**15 + 7])),
    )  # fmt: skip


@settings(deadline=None)
@given(stream=streams(), split=splits(), data=st.data())
def test_shares_and_restarts_together_send_the_stream_once(stream, split, data):
    check_shares_and_restarts(stream, stream.preload + stream.records, split, data)


@pytest.mark.lengthy
@settings(deadline=None)
@given(stream=streams(), split=splits())
def test_the_preload_and_what_comes_behind_it_are_the_whole(stream, split):
    partitions, _, size = split
    share, nothing = Share(0, 1, partitions), [0] * partitions
    whole = sent(stream, share, nothing, size)
    before = sent(stream, share, nothing, size, stream.preload)
    after = sent(stream, share, [len(before[p]) for p in range(partitions)], size)
    assert {p: before[p] + after[p] for p in whole} == whole
    assert sum(len(part) for part in before.values()) == stream.preload


@settings(deadline=None)
@given(stream=streams(), data=st.data())
def test_an_event_depends_on_its_number_alone(stream, data):
    whole = sent(stream, Share(0, 1, 1), [0], 1000)[0]
    for number in data.draw(st.lists(st.integers(0, max(0, len(whole) - 1)), max_size=5)) if whole else ():
        assert stream.record(number) == whole[number][0]
