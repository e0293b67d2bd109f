"""Files are whole or not there, and only a last line can be torn."""

import json
import math

import pytest

from harness.files import JsonLines, read_json, read_lines, write_json


def test_json_is_written_whole_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})
    write_json(path, {"a": [1, None, "é"]})
    assert read_json(path) == {"a": [1, None, "é"]}
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})
    for bad in (math.nan, math.inf, object()):
        with pytest.raises((ValueError, TypeError)):
            write_json(path, {"a": bad})
    assert read_json(path) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_file_is_empty_and_a_broken_one_is_named(tmp_path):
    path = tmp_path / "a.json"
    assert read_json(path) == {}
    assert read_lines(path) == []
    path.write_text("{")
    with pytest.raises(ValueError, match=r"a\.json is not JSON"):
        read_json(path)


def test_lines_are_there_as_soon_as_they_are_written(tmp_path):
    path = tmp_path / "a.jsonl"
    with JsonLines(path) as file:
        file.write({"n": 1})
        assert read_lines(path) == [{"n": 1}]
        file.write({"n": 2})
    assert read_lines(path) == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize("torn", ['{"n": ', "x" * 200_000], ids=["short", "longer than a block"])
@pytest.mark.parametrize("before", [0, 1, 3])
def test_a_torn_last_line_is_left_out_and_cut_off_by_the_next_writer(tmp_path, before, torn):
    path, lines = tmp_path / "a.jsonl", [{"n": number} for number in range(before)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + torn)
    assert read_lines(path) == lines
    with JsonLines(path) as file:
        file.write({"n": "next"})
    assert read_lines(path) == [*lines, {"n": "next"}]


def test_any_other_broken_line_is_named(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"n": 1}\nno\n{"n": 2}\n')
    with pytest.raises(ValueError, match=r"a\.jsonl line 2 is not JSON"):
        read_lines(path)
