"""The table in tests/README.md: every command and every test of a capability is in it, and what it names is there."""

import ast
import re
from pathlib import Path

import pytest

import tasks
from harness.files import ROOT

TESTS = ROOT / "tests"
_ROW = re.compile(r"^\| (?P<what>[^|]+) \| (?P<commands>[^|]*) \| (?P<tests>`[^|]*::[^|]*) \|$", re.M)


def rows() -> list[tuple[str, list[str], list[str]]]:
    """(what, commands, tests) of each row."""
    text = (TESTS / "README.md").read_text()
    found = [(m["what"], re.findall("`([^`]+)`", m["commands"]), re.findall("`([^`]+)`", m["tests"]))
             for m in _ROW.finditer(text)]  # fmt: skip
    assert len(found) > 30
    return found


def marked(path: Path) -> set[str]:
    """The tests of a file that its marks call capabilities, with the cases that they name."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        for mark in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
            call = mark.func if isinstance(mark, ast.Call) else mark
            if ast.unparse(call) == "pytest.mark.capability":
                name = f"{path.relative_to(TESTS)}::{node.name}"
                cases = [ast.literal_eval(case) for case in mark.args] if isinstance(mark, ast.Call) else []
                found |= {f"{name}[{case}]" for case in cases} or {name}
    return found


def test_every_test_of_a_capability_has_a_row_and_every_row_such_tests():
    named = [test for _, _, tests in rows() for test in tests]
    assert len(named) == len(set(named))
    assert set(named) == {test for path in TESTS.rglob("test_*.py") for test in marked(path)}


def test_every_command_has_a_row():
    named = [command for _, commands, _ in rows() for command in commands]
    assert len(named) == len(set(named))
    assert set(named) == {name.replace("_", "-") for name in tasks.namespace.task_names}


def test_a_suite_has_every_test_that_a_row_names(request):
    if request.config.option.hand is None:
        pytest.skip("only the suite has a hand: ./inv test")
    collected = {item.nodeid.removeprefix("tests/") for item in request.session.items}
    files = {name.partition("::")[0] for name in collected}
    collected |= {name.partition("[")[0] for name in collected}  # a row without a case stands for all of them
    named = {test for _, _, tests in rows() for test in tests if test.partition("::")[0] in files}
    assert not named - collected
