"""The generator's speed: what is counted, which round is told, and the exit codes."""

import itertools
import json

import pytest

from generators.nexmark.profile import make_profile
from generators.nexmark.speed import Speed, main, measure, middle
from generators.nexmark.stream import NexmarkStream
from generators.rates import make_schedule
from generators.stream import Share


def stream(profile="default"):
    return NexmarkStream(
        make_profile(profile, 1000), make_schedule("constant", 1000), 1000, 1, start_us=0, records=9000
    )


@pytest.mark.parametrize("profile", ["default", "large-state:auctions=50"])
def test_all_events_and_bytes_of_a_stream_are_counted_by_processor_time(profile):
    made = stream(profile)
    found = measure(made, cpu=itertools.count(5, 2).__next__, wall=itertools.count(1, 7).__next__)
    values = [v for block in made.blocks(Share(0, 1, 1), [0], 1000) for v in block.values]
    assert (found.events, found.bytes) == (made.total, len(b"".join(values)))
    assert (found.cpu_s, found.wall_s) == (2, 7)
    assert found.per_second == made.total / 2


def test_the_middle_round_is_told_the_slower_of_two():
    rounds = [Speed(100, 1, seconds, 9.0) for seconds in (1.0, 4.0, 2.0)]
    assert middle(rounds).cpu_s == 2.0
    assert middle(rounds[:2]).cpu_s == 4.0


def test_it_prints_every_round_and_the_median_and_fails_below_the_rate_asked_for(capsys):
    options = ["--events", "3000", "--rounds", "3", "--bid-channels", "--out-of-order", "group=7"]
    assert main(options) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line.get("round", "median") for line in lines] == [0, 1, 2, "median"]
    assert lines[3]["events_per_s"] == sorted(line["events_per_s"] for line in lines[:3])[1]
    assert all(line["events"] == 3000 and line["bytes"] > 3000 * 100 for line in lines)
    assert main([*options, "--at-least", "1000000000"]) == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [(["--rounds", "0"], "a round"), (["--events", "0"], "an event"), (["--profile", "x"], "large-")],
)
def test_bad_input_is_one_sentence_and_exit_code_2(capsys, options, says):
    assert main(options) == 2
    said = capsys.readouterr().err
    assert says in said
    assert len(said.splitlines()) == 1
