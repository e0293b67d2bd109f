"""A change as a query takes it: the code is that of the file as it is now."""

import pickle

import pytest

from harness.run.change import request_of
from impls.errors import UsageError

RULES = "from impls.operators.steps import Filter\nlimit = Filter('limit', lambda row: row['key'] < {})\n"


def step_of(path):
    return pickle.loads(bytes.fromhex(request_of("insert", code=f"{path}:limit", before=None)["code"]))


def test_files_of_one_name_and_a_file_that_was_edited_each_give_their_own_code(tmp_path):
    for folder, limit in (("a", 10), ("b", 99)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "rules.py").write_text(RULES.format(limit))
    assert not step_of(tmp_path / "a" / "rules.py").function({"key": 50})
    assert step_of(tmp_path / "b" / "rules.py").function({"key": 50})
    (tmp_path / "a" / "rules.py").write_text(RULES.format(60))
    assert step_of(tmp_path / "a" / "rules.py").function({"key": 50})


def test_a_file_that_cannot_be_loaded_is_refused_each_time(tmp_path):
    path = tmp_path / "rules.py"
    path.write_text(RULES.format(10) + "1 / 0\n")
    for _ in range(2):
        with pytest.raises(UsageError, match=r"rules.py cannot be loaded: ZeroDivisionError"):
            step_of(path)


def test_code_of_one_file_is_one_module(tmp_path):
    path = tmp_path / "rules.py"
    path.write_text(RULES.format(10) + "to = [limit].copy\nback = to\n")
    request = request_of("replace", code=f"{path}:limit", migrate="to", back="back", lazy=False, budget=None)
    given = pickle.loads(bytes.fromhex(request["code"]))
    assert given["migrate"]()[0] is given["by"]
