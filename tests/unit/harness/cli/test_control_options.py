"""What `./inv control` makes of its options, and the sentence for what makes no command."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from harness.cli.control import OPTIONS, command_of
from impls.controltopic.commands import read_command
from impls.errors import UsageError
from impls.protocol.jsontext import to_text

NOW = datetime.fromisoformat("2026-11-23T08:30").astimezone()


def local(text):
    return datetime.fromisoformat(text).astimezone()


def given(do="rescale", **more):
    values = {option.name: option.default for option in OPTIONS} | {"do": do, **more}
    return command_of(values, NOW)


def test_a_rescale_with_all_that_can_be_said():
    command = given(workers=8, policy="contiguous", hosts="a,b", query="left,right", sender="me")
    assert command == {
        "do": "rescale", "workers": 8, "policy": "contiguous", "hosts": ["a", "b"], "queries": ["left", "right"],
        "sender": "me",
    }  # fmt: skip


@pytest.mark.parametrize("do", ["rebalance", "stop", "status"])
def test_what_needs_nothing_else(do):
    assert given(do) == {"do": do}


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("12:00:00", local("2026-11-23T12:00")),
        ("07:15", local("2026-11-23T07:15")),
        ("12:00:00.250", local("2026-11-23T12:00:00.250")),
        ("2026-11-24T00:30:00", local("2026-11-24T00:30")),
        ("2026-11-24 00:30", local("2026-11-24T00:30")),
        ("2026-11-23T12:00:00Z", datetime(2026, 11, 23, 12, tzinfo=UTC)),
        ("2026-11-23T12:00:00+02:00", datetime(2026, 11, 23, 12, tzinfo=timezone(timedelta(hours=2)))),
    ],
)
def test_a_time_is_one_of_today_or_iso_8601_and_local_without_a_zone(text, when):
    assert given("stop", **{"from": text})["from"] == {"time": round(when.timestamp() * 1000)}


def test_offsets_are_by_topic_and_partition():
    offsets = given("stop", offsets="in:0=1200,in:1=1180,a:b:7=0")["from"]
    assert offsets == {"offsets": {"in": {"0": 1200, "1": 1180}, "a:b": {"7": 0}}}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "A rescale needs --workers"),
        ({"do": "stop", "workers": 4}, "The option --workers is one of rescale, not of stop"),
        ({"do": "status", "policy": "contiguous"}, "The option --policy is one of rescale"),
        ({"do": "replace"}, "A replace needs --offered, a name that pipeline.offer has said"),
        ({"do": "insert"}, "An insert needs --offered"),
        ({"do": "remove"}, "A remove needs --name, the name of the step"),
        ({"do": "remove", "name": "a", "lazy": True}, "The option --lazy is one of replace, not of remove"),
        ({"do": "stop", "offered": "a1"}, "The option --offered is one of replace and insert, not of stop"),
        ({"workers": 4, "from": "12:00:00", "offsets": "in:0=1"}, "give --from or --offsets"),
        ({"workers": 4, "from": "noon"}, "--from takes a time of today"),
        ({"workers": 4, "from": "25:00:00"}, "--from takes a time of today"),
        ({"workers": 4, "from": ""}, "--from takes a time of today"),
        ({"workers": 4, "offsets": "in=3"}, "--offsets takes TOPIC:PARTITION=OFFSET"),
        ({"workers": 4, "offsets": "in:0=-1"}, "--offsets takes TOPIC:PARTITION=OFFSET"),
        ({"workers": 4, "offsets": ","}, "--offsets takes TOPIC:PARTITION=OFFSET"),
    ],
)
def test_what_makes_no_command_is_said_in_one_sentence(options, words):
    with pytest.raises(UsageError, match=words):
        given(**options)


def test_what_the_task_sends_is_a_command():
    for more in ({"workers": 4}, {"do": "stop", "from": "12:00:00"}, {"do": "status", "offsets": "in:0=5"}):
        command = given(**more)
        found = read_command(to_text({"id": "a", **command}), (0, 0), "any")
        assert found is not None
        assert found.request["do"] == command["do"]
        assert found.conditional == ("from" in command)


def test_changes_of_the_pipeline_name_code_that_is_offered():
    assert given("remove", name="limit") == {"do": "remove", "name": "limit"}
    put = given("insert", offered="a1", before="other", query="left")
    assert put == {"do": "insert", "offered": "a1", "before": "other", "queries": ["left"]}
    by = given("replace", offered="a1", lazy=True, budget=4096)
    assert by == {"do": "replace", "offered": "a1", "lazy": True, "repairs": 0, "budget_bytes": 4096}
    assert "budget_bytes" not in given("replace", offered="a1")
