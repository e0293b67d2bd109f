"""What a network does to packets, in netem's words; and the cable that does it."""

import pytest

from harness.lab.hosts.cable import _Delays
from harness.lab.hosts.settings import Netem, parse_netem
from impls.errors import UsageError

_CLEAN = {"delay_s": 0.0, "jitter_s": 0.0, "loss": 0.0, "rate": 0.0}


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("", Netem()),
        ("delay 2ms loss 0.1%", Netem(delay_s=0.002, loss=0.001)),
        ("delay 1.5s 500us", Netem(delay_s=1.5, jitter_s=0.0005)),
        (" delay  0ms ", Netem()),
        ("loss 100% rate 10mbit", Netem(loss=1.0, rate=1_250_000.0)),
        ("rate 8kbit", Netem(rate=1000.0)),
        ("delay 10ms 10ms loss 5% rate 1gbit", Netem(0.01, 0.01, 0.05, 125e6)),
    ],
)
def test_netem_s_words_are_read(text, read):
    assert parse_netem(text) == read


@pytest.mark.parametrize(
    "text",
    ["delay", "delay 2", "2ms", "loss 0.1", "loss 1% delay 1ms", "delay 1ms delay 2ms", "corrupt 1%", "delay -1ms",
     "delay nanms", "delay 1ms;reboot"],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_with_an_example(text):
    with pytest.raises(UsageError, match="cannot be read: give it as netem has it, 'delay 2ms 1ms loss"):
        parse_netem(text)


@pytest.mark.parametrize("text", ["delay 11s", "delay 1ms 2ms", "loss 101%"])
def test_what_cannot_be_is_refused(text):
    with pytest.raises(UsageError, match="cannot be: a delay is at most 10 s"):
        parse_netem(text)


def test_a_packet_waits_for_its_delay_and_keeps_its_place():
    delays = _Delays({**_CLEAN, "delay_s": 0.5}, seed=1)
    assert delays.wait_s(1.0) is None
    for number in range(3):
        delays.put(b"%d" % number, 1.0)
    assert delays.wait_s(1.2) == pytest.approx(0.3)
    assert delays.due(1.49) == []
    assert delays.due(1.5) == [b"0", b"1", b"2"]
    assert delays.due(9.0) == []


def test_jitter_spreads_the_times_within_its_bounds():
    delays = _Delays({**_CLEAN, "delay_s": 0.5, "jitter_s": 0.1}, seed=1)
    for _ in range(500):
        delays.put(b"x", 0.0)
    assert delays.due(0.4) == []
    early = len(delays.due(0.5))
    assert 200 < early < 300
    assert early + len(delays.due(0.6)) == 500


def test_a_share_of_the_packets_is_lost():
    delays = _Delays({**_CLEAN, "loss": 0.3}, seed=1)
    for _ in range(900):
        delays.put(b"x", 0.0)
    assert 550 < len(delays.due(0.0)) < 710


def test_a_rate_lets_bytes_pass_one_after_another():
    delays = _Delays({**_CLEAN, "rate": 1000.0}, seed=1)
    for _ in range(3):
        delays.put(bytes(100), 5.0)
    assert [len(delays.due(5.0 + 0.1 * step)) for step in range(5)] == [0, 1, 1, 1, 0]


def test_a_cable_holds_a_thousand_packets_and_loses_the_rest():
    delays = _Delays({**_CLEAN, "delay_s": 1.0}, seed=1)
    for _ in range(1500):
        delays.put(b"x", 0.0)
    assert len(delays.due(1.0)) == 1000
