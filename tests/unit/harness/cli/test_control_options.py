"""What `./inv control` makes of its options, and the sentence for what makes no command."""

import pickle
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
        ({"do": "replace"}, "A replace needs --code, a Python file and a name in it"),
        ({"do": "insert"}, "An insert needs --code"),
        ({"do": "remove"}, "A remove needs --name, the name of the step"),
        ({"do": "remove", "name": "a", "lazy": True}, "The option --lazy is one of replace, not of remove"),
        ({"do": "stop", "code": "rules.py:limit"}, "The option --code is one of replace and insert, not of stop"),
        ({"do": "insert", "code": "rules.py:limit"}, "rules.py:limit names no file and name in it"),
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


def test_changes_of_the_pipeline_carry_their_code(tmp_path):
    rules = tmp_path / "rules.py"
    rules.write_text(
        "from impls.operators import Filter, HashCount\n"
        "limit = Filter('limit', lambda row: True)\n"
        "def double(value): return value\n"
        "class Counts(HashCount): pass\n"
    )
    assert given("remove", name="limit") == {"do": "remove", "name": "limit"}
    put = given("insert", code=f"{rules}:limit", before="other", query="left")
    assert (put["before"], put["queries"]) == ("other", ["left"])
    assert pickle.loads(bytes.fromhex(put["code"])).name == "limit"
    by = given("replace", code=f"{rules}:Counts", migrate="double", lazy=True, budget=4096)
    assert (by["lazy"], by["budget_bytes"]) == (True, 4096)
    code = pickle.loads(bytes.fromhex(by["code"]))
    assert (type(code["by"]).__name__, code["migrate"](3), code["back"]) == ("Counts", 3, None)
    assert "budget_bytes" not in given("replace", code=f"{rules}:Counts")
