"""The NEXMark stream: golden digests, times, order, the preload, and what is refused."""

import time
from unittest.mock import patch

import numpy as np
import pytest
from decoding import decode
from digests import nexmark_digest

from generators.nexmark import order
from generators.nexmark.profile import MEGAPHONE_HORIZON_S, make_profile
from generators.nexmark.stream import NexmarkStream
from generators.rates import make_schedule
from generators.spec import GeneratorError
from generators.stream import Share

WHOLE = Share(0, 1, 1)
RATE, START_US = 10_000, 1_700_000_000_000_000
# a digest that moves means that streams made before and after are different workloads under one name
GOLDEN = {
    "1 default": "f61b3f5f4618a66fbde0c2d44aa89510497d5a499f9d437f1a64de3ec4d89b19",
    "2 default": "6cb85f47456e50a9343041ea6df300e958563711194ce058a8e711c9cab520e2",
    "18446744073709551615 default": "34c040aea30e765e57ce976d39c7bd503811045fd230a7a4e9c00bb1f0b5df92",
    "1 default channels": "7a7b7297221dc60292021e001af962cc1be579eafda92191381b1dae05337c32",
    "1 default group=50,probability=0.1,delay=3": "f78da0e1a92bcc7697b3c398eebdff0fd3feeb0a19c035575473670496f3a64e",
    "1 large-state:auctions=1000": "a9e78fb8796273a058b3b6644f8ce7fa16c03059a832bb4bc8a715ce2314146b",
    "1 large-state:auctions=99 delay=0.2 channels": "9ba2a01aa11b176a6c0a4dea5b15ef93ceff572cd6117fd62c2c5b66f25319ac",
}


def make(
    records, *, seed=1, rate=RATE, shape="constant", profile="default", start_us=START_US, event_us=None, **options
):
    return NexmarkStream(
        make_profile(profile, rate, **options), make_schedule(shape, rate), rate, seed,
        start_us=start_us, records=records, event_start_us=event_us,
    )  # fmt: skip


def values(stream, share=WHOLE, size=4096, **options):
    return [v for block in stream.blocks(share, [0] * share.partitions, size, **options) for v in block.values]


def read(*args, **options):
    return [decode(value) for value in values(make(*args, **options))]


@pytest.mark.parametrize("name", GOLDEN)
def test_a_stream_is_the_same_forever(name):
    seed, profile, *rest = name.split()
    disorder = next((text for text in rest if "=" in text), "")
    stream = make(20_000, seed=int(seed), profile=profile, out_of_order=disorder, channels="channels" in rest)
    assert nexmark_digest(stream) == GOLDEN[name]


def test_another_seed_gives_other_events_of_the_same_kinds_and_times():
    first, second = read(500), read(500, seed=2)
    assert [(e["type"], e["dateTime"]) for e in first] == [(e["type"], e["dateTime"]) for e in second]
    assert [e["price"] for e in first[4:50]] != [e["price"] for e in second[4:50]]


def test_an_event_happens_when_it_is_due():
    found = read(1000, rate=700, start_us=START_US + 123)
    assert [e["scheduled_us"] for e in found] == [START_US + 123 + n * 1_000_000 // 700 for n in range(1000)]
    assert all(e["dateTime"] == e["scheduled_us"] // 1000 for e in found)


def test_event_time_can_count_from_elsewhere():
    moved = read(1000, event_us=START_US - 7_000_000)
    for plain, event in zip(read(1000), moved, strict=True):
        shifted = {name: plain[name] - 7000 for name in ("dateTime", "expires") if name in plain}
        assert event == plain | shifted


def test_event_time_is_in_order_in_every_partition():
    for block_size in (7, 4096):
        for number in range(3):
            found = [decode(v) for v in values(make(3000), Share(number, 3, 3), block_size)]
            times = [e["scheduled_us"] for e in found]
            assert len(found) == 1000
            assert times == sorted(times)


@pytest.mark.parametrize(
    "out_of_order", ["group=7,probability=0", "delay=0.5", "group=20,probability=0.5,delay=0.3", "probability=0"]
)
def test_every_event_is_sent_once_and_none_before_its_time(out_of_order):
    cut = 20_000
    plain = [e | {"scheduled_us": 0} for e in read(cut + 10_000)]
    found = read(cut + 10_000, out_of_order=out_of_order)
    sending = [e["scheduled_us"] for e in found]
    assert sending == sorted(sending)
    early = [e | {"scheduled_us": 0} for e in found]
    key = lambda e: (e["type"], e["dateTime"], e["extra"])  # noqa: E731
    known = {key(e): e for e in plain}
    assert len({key(e) for e in early}) == len(early)
    assert {key(e) for e in plain[:cut]} <= {key(e) for e in early}
    assert all(known[key(e)] == e for e in early[:cut])


@pytest.mark.parametrize("shape", ["constant", "step:0.1=5,0.2=0.5", "sine:period=0.2"])
def test_places_do_not_depend_on_the_chunks_they_are_worked_out_in(shape):
    profile = make_profile("default", RATE, out_of_order="group=3,probability=0.3,delay=0.05")
    schedule = make_schedule(shape, RATE)
    one = order.Order(schedule, 0, profile, 1)
    everything = one._sorted(0, 8000)  # its last places lack events that come behind
    with patch.object(order, "_CHUNK", 64):
        many = order.Order(schedule, 0, profile, 1)
        parts = [many.slots(low, 50) for low in range(0, 5000, 50)]
    assert np.concatenate([part.ids for part in parts]).tolist() == everything.ids[:5000].tolist()
    assert np.concatenate([part.send_us for part in parts]).tolist() == everything.send_us[:5000].tolist()
    for offset in (-1, 0, 1, 50_000, 111_111, int(everything.send_us[4321])):
        assert one.records_until(offset) == int((everything.send_us <= offset).sum())


def test_the_preload_comes_before_the_clock_starts_with_ids_before_the_measured_ones():
    stream = make(10_000, profile="large-state:auctions=3000")
    found = [decode(v) for v in values(stream)]
    before, after = found[: stream.preload], found[stream.preload :]
    assert {e["type"] for e in before} == {"person", "auction"}
    assert all(e["scheduled_us"] < START_US <= f["scheduled_us"] for e, f in zip(before, after, strict=False))
    assert all(e["dateTime"] == e["scheduled_us"] // 1000 for e in found)
    assert len(after) == 10_000
    for kind in ("person", "auction"):
        ids = [e["id"] for e in found if e["type"] == kind]
        assert ids == sorted(set(ids))
    persons = [e["id"] for e in found if e["type"] == "person"]
    assert persons == list(range(1000, 1000 + len(persons)))
    opened = [e["id"] for e in after if e["type"] == "auction"]
    assert opened == list(range(opened[0], opened[0] + 600))
    assert stream.first == 2 * 3000 // 3 * 50
    assert opened[0] == 1000 + stream.first // 50 * 3


def test_the_preload_holds_the_auctions_that_are_open_at_the_start():
    stream = make(0, profile="large-state:auctions=20000")
    auctions = [e for v in values(stream) if (e := decode(v))["type"] == "auction"]
    assert all(e["dateTime"] <= START_US // 1000 < e["expires"] for e in auctions)
    assert len(auctions) == pytest.approx(20_000, rel=0.03)


def test_the_events_of_the_preload_are_those_of_the_stream_without_one():
    """An event is a function of its id: a stream that starts at the first event has the same ones."""
    stream = make(0, profile="large-state:auctions=500", start_us=START_US)
    span_us = stream.first * 1_000_000 // RATE
    whole = make(stream.first, profile="default", start_us=START_US - span_us)
    whole._encoder._horizon = stream._encoder._horizon
    every = [decode(v) for v in values(whole)]
    assert [decode(v) for v in values(stream)] == [every[n] for n in stream._before.tolist()]


def test_the_preload_can_be_sent_before_the_start_is_known():
    early = make(500, profile="large-state:auctions=300", start_us=0, event_us=START_US)
    late = make(500, profile="large-state:auctions=300", start_us=START_US + 60_000_000, event_us=START_US)
    preload = values(early, end=early.preload)
    assert len(preload) == early.preload > 300
    assert values(late)[: late.preload] == preload
    rest = [v for b in late.blocks(WHOLE, [late.preload], 4096) for v in b.values]
    assert preload + rest == values(late)
    assert decode(rest[0])["scheduled_us"] == START_US + 60_000_000
    assert decode(rest[0])["dateTime"] == START_US // 1000
    assert late.records_left(WHOLE, [late.preload], START_US + 60_009_999) == 100
    assert late.records_left(WHOLE, [0], 0) == late.preload


def test_large_state_scales_with_the_rate_as_megaphones_does():
    assert make_profile(f"large-state:horizon={MEGAPHONE_HORIZON_S}", 4000).in_flight == 4000 * 2592
    assert make_profile("large-state", 10_000).in_flight == 720_000
    assert make_profile("large-state", 1000).in_flight == 72_000
    assert make_profile("large-state:auctions=12345", 1000).in_flight == 12_345
    assert [make_profile("default", rate).in_flight for rate in (10, 100_000)] == [100, 100]


def test_no_events_are_fine():
    assert values(make(0)) == []


@pytest.mark.parametrize(
    "value",
    [b"", b"{}", b"[]", b"\xff", b'{"type":"bird"}', bytes(16), values(make(5))[4][:-1],
     values(make(5))[4].replace(b'"price":', b'"prise":'), values(make(5))[4].replace(b'"bidder":', b'"bidder":1.'),
     values(make(1))[0].replace(b'"state"', b'"channel"')],
)  # fmt: skip
def test_another_layout_is_refused(value):
    with pytest.raises(GeneratorError, match="another stream"):
        decode(value)


@pytest.mark.parametrize(
    ("profile", "out_of_order", "says"),
    [
        ("small", "", "use one of default, large-state"),
        ("default:auctions=5", "", "takes none"),
        ("large-state:auctions=0.5", "", "from 1 to"),
        ("large-state:auctions=1e9", "", "from 1 to"),
        ("large-state:horizon=-1", "", "from 1 to"),
        ("large-state:size=1", "", "horizon, auctions"),
        ("default", "group=0", "group"),
        ("default", "group=1.5", "group"),
        ("default", "group=1906", "953"),
        ("default", "probability=1", "probability"),
        ("default", "delay=0", "delay"),
        ("default", "delay=1e6", "delay"),
        ("default", "late=1", "group, probability, delay"),
    ],
)
def test_a_profile_out_of_range_is_refused(profile, out_of_order, says):
    with pytest.raises(GeneratorError, match=says):
        make_profile(profile, 1000, out_of_order=out_of_order)


def test_fewer_than_no_events_are_refused():
    with pytest.raises(GeneratorError, match="number of records"):
        make(-1)


@pytest.mark.parametrize("options", [{}, {"channels": True}, {"out_of_order": "group=7"}])
def test_an_event_costs_at_most_ten_microseconds_of_processor_time(options):
    stream = make(100_000, rate=100_000, **options)
    begin = time.process_time()
    number = sum(len(block.values) for block in stream.blocks(Share(0, 1, 2), [0, 0], 4096))
    assert (time.process_time() - begin) / number < 10e-6
