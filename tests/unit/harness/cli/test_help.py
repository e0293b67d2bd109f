"""`./inv` as a user sees it: help with every option and default, and one sentence for what it does not know."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import tasks
from harness.cli.verb import Verb
from harness.options.declared import FLAG, help_text, shown

ROOT = Path(__file__).parents[4]
_GROUPS = tasks.namespace.collections.items()
TASKS = {**tasks.namespace.tasks, **{f"{g}.{n}": t for g, group in _GROUPS for n, t in group.tasks.items()}}
VERBS = {name: task for name, task in TASKS.items() if isinstance(task, Verb)}


def inv(*words: str, columns: int = 100) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", str(ROOT / "harness" / "cli" / "program.py"), "--search-root", str(ROOT), *words]
    environment = {"PATH": "/usr/bin:/bin", "COLUMNS": str(columns)}
    return subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_help_of_bench_is_the_same_before_and_behind_it_in_four_groups():
    behind, before = inv("bench", "--help"), inv("--help", "bench")
    assert (behind.returncode, behind.stderr, behind.stdout) == (0, "", before.stdout)
    headings = [line for line in behind.stdout.splitlines() if line and not line.startswith(" ")]
    assert headings[-4:] == ["What to run", "Load", "Cluster", "Output"]
    assert inv("report", "-h").stdout.startswith("Usage: ./inv report FOLDER [options]")


@pytest.mark.parametrize("columns", [60, 80, 100, 120, 300])
@pytest.mark.parametrize("name", VERBS)
def test_help_has_every_option_with_its_default_and_fits(name, columns):
    task = VERBS[name]
    text = task.help_for(name, columns)
    words = " ".join(text.split())
    assert max(map(len, text.splitlines())) <= min(max(columns, 80), 120)
    for option in task.options:
        assert f"  {option.flag} {option.metavar}".rstrip() in text
        assert option.help in words
        if option.kind != FLAG and not option.required:
            assert f"[{option.shown or shown(option, option.default)}" in words


def test_help_of_bench_shows_units_and_the_defaults_of_presets():
    words = " ".join(tasks.bench.help_for("bench", 120).split())
    assert (
        "--duration SECONDS length of the measured load; it goes on up to three times as long until every migration is "
        "crossed by records and steady state is back [36 seconds; standard: 24 seconds; --quick: 7.5 seconds]" in words
    )
    assert "[4M; standard: 1M; --quick: 400k]" in words
    assert "[10k records/s; standard: as a probe of this machine says, at most 10k records/s]" in words


def test_options_without_a_group_stand_under_one_heading():
    task = VERBS["status"]
    text = help_text("status", "About.\n\nMore of it.", task.options, 80, {})
    assert [line for line in text.splitlines() if line and not line.startswith(" ")] == [
        "Usage: ./inv status CHECKPOINT [options]; defaults stand in brackets.", "About.", "More of it.", "Options",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["bench", "--speed", "9"], "./inv bench has no option --speed"),
        (["bench", "--keys"], "--keys needs a value"),
        (["bench", "teleport"], "no task teleport"),
        (["teleport"], "no task teleport"),
        (["--speed"], "no option --speed"),
        (["--help", "teleport"], "teleport"),
        (["report"], "./inv report needs --folder"),
        (["rescale", "--checkpoint", "x", "--workers", "many"], "The number of workers must be a number"),
        (["bench", "--duration", "soon"], "--duration takes a number, not 'soon'"),
        (["bench", "--bins", "7"], "power of two from 2 to 16384, not 7"),
        (["bench", "--cost", "think"], "wait or compute, not 'think'"),
        (["fault-test", "--seed", "lucky"], "--seed takes a number"),
        (["simulate", "--jobs", "all"], "The number of processes"),
        (["test", "--jobs", "all"], "The number of processes"),
        (["validate", "no-such-file"], "cannot be read"),
    ],
)
def test_what_is_not_known_gets_one_sentence_and_exit_code_2(words, says):
    done = inv(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_tasks_are_listed_without_loading_what_is_slow():
    slow = "{'numpy', 'pyspark', 'pyarrow', 'rich', 'lmdb', 'impls.catalog'}"
    code = f"import sys; import tasks; print(sorted({slow} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"
    listed = inv("--list")
    assert listed.returncode == 0
    assert all(f"\n  {name} " in listed.stdout for name in VERBS)


@pytest.mark.capability
def test_what_tasks_run_is_there():
    found = [
        node.args[0].value
        for path in (ROOT / "tasks.py", *(ROOT / "harness" / "cli").glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "run" and node.args
    ]
    assert len(found) >= 14
    for where in found:
        module, _, name = where.partition(":")
        assert callable(getattr(importlib.import_module(module), name)), where


def test_an_option_that_was_renamed_is_read_with_a_warning():
    said = inv("pipeline.replace", "nowhere", "--code", "rules.py:limit", "--mends=two")
    assert said.returncode == 2
    warning, refused = said.stderr.splitlines()
    assert warning == "--mends is now --repairs; the old name goes with the next version."
    assert "two" in refused
