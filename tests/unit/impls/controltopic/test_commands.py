"""What a record of the control topic may say, and the sentence for what it may not."""

import json

import pytest

from impls.controltopic.commands import BadCommandError, ControlCommand, read_command

GOOD = {"id": "a", "sender": "s", "do": "rescale", "workers": 4, "policy": "contiguous"}


def read(**more):
    return read_command(json.dumps({**GOOD, **more}).encode(), (1, 7), "orders")


def test_a_command_is_its_request_and_a_condition():
    command = read()
    assert command is not None
    assert (command.id, command.sender, command.at, command.answer) == ("a", "s", (1, 7), "")
    assert command.request == {"do": "rescale", "workers": 4, "policy": "contiguous"}
    assert not command.conditional


@pytest.mark.parametrize(
    ("condition", "time_ms", "offsets"),
    [
        ({"time": 1500}, 1500, None),
        ({"time": "1970-01-01T00:00:01.5Z"}, 1500, None),
        ({"time": "1970-01-01T02:00:01+02:00"}, 1000, None),
        ({"offsets": {"in": {"0": 5, "1": 0}}}, None, {"in": {0: 5, 1: 0}}),
    ],
)
def test_conditions(condition, time_ms, offsets):
    command = read(**{"from": condition})
    assert (command.time_ms, command.offsets, command.conditional) == (time_ms, offsets, True)
    assert ControlCommand.from_json(json.loads(json.dumps(command.to_json()))) == command


@pytest.mark.parametrize(
    ("field", "bad", "words"),
    [
        ("do", None, "The field do says"),
        ("do", 5, "The field do says"),
        ("sender", 5, "The field sender is a text"),
        ("answer", "a topic", "The field answer is the name of a topic"),
        ("answer", ["t"], "The field answer is the name of a topic"),
        ("code", "80049", "A command brings no code"),
        ("workers", json.loads("[" * 300 + "]" * 300), "The record is nested more than 20 deep"),
        ("workers", json.loads('{"a":' * 30 + "1" + "}" * 30), "The record is nested more than 20 deep"),
        ("queries", "orders", "The field queries is a list"),
        ("queries", [1], "The field queries is a list"),
        ("from", 12, "The field from is"),
        ("from", {}, "The field from is"),
        ("from", {"time": 1, "offsets": {"in": {"0": 1}}}, "The field from is"),
        ("from", {"offsets": {}}, "The field from is"),
        ("from", {"offsets": {"in": {}}}, "The field from is"),
        ("from", {"offsets": {"in": {"x": 1}}}, "The field from is"),
        ("from", {"offsets": {"in": {"0": -1}}}, "The field from is"),
        ("from", {"offsets": {"in": {"0": True}}}, "The field from is"),
        ("from", {"offsets": {"in": 5}}, "The field from is"),
        ("from", {"time": "12:00:00"}, "A time is a number of ms"),
        ("from", {"time": "2026-11-23T12:00:00"}, "A time is a number of ms"),
        ("from", {"time": -1}, "A time is a number of ms"),
        ("from", {"time": 1.5}, "A time is a number of ms"),
        ("from", {"time": None}, "A time is a number of ms"),
    ],
)
def test_a_bad_field_is_named_in_one_sentence(field, bad, words):
    with pytest.raises(BadCommandError, match=words) as refusal:
        read(**{field: bad})
    assert refusal.value.id == "a"


def test_a_command_is_for_all_queries_or_for_those_it_names():
    assert read(queries=["orders"]) is not None
    assert read(queries=["others"]) is None
    assert read(queries=[]) is None
    assert read(queries=["others"], do=5) is None  # what it says is theirs to refuse
    assert read(queries=["others"], deep=json.loads("[" * 300 + "]" * 300)) is None


@pytest.mark.parametrize("value", [b"x", b"[]", b"{}", json.dumps({**GOOD, "id": "i" * 201}).encode()])
def test_a_record_without_an_id_is_no_command(value):
    with pytest.raises(BadCommandError) as refusal:
        read_command(value, (0, 0), "orders")
    assert refusal.value.id == ""
