"""The command of the installed package: the tasks of ./inv that need no repository, under its own name."""

import subprocess
import sys
from pathlib import Path

import pytest

import rescale_bench
import tasks
from rescale_bench.__main__ import main
from rescale_bench.verbs import collection

ROOT = Path(__file__).parents[3]
NEED_THE_REPOSITORY = {
    "check", "clean", "dist", "docs", "example", "figures", "fmt", "graph", "lock", "regress", "reproduce", "simulate",
    "test", "verify-claims", "docker.bench", "docker.build", "docker.reproduce",
}  # fmt: skip


def command(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "rescale_bench", *words], cwd=folder, env=environment, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip


def test_it_has_every_task_but_those_that_need_the_repository_and_its_own_doctor():
    assert set(tasks.namespace.task_names) - set(collection().task_names) == NEED_THE_REPOSITORY | {"doctor"}
    assert set(collection().task_names) < set(tasks.namespace.task_names)


@pytest.mark.lengthy
def test_it_lists_its_commands_and_runs_them_under_its_own_name(tmp_path):
    listed = command(folder=tmp_path)
    assert (listed.returncode, listed.stdout) == (0, command("--help", folder=tmp_path).stdout)
    assert "  pipeline.replace  Replace the operator of a running query" in listed.stdout
    assert command("bench", "--help", folder=tmp_path).stdout.startswith("Usage: rescale-bench bench [options]")
    assert "megaphone-batched" in command("mechanisms", folder=tmp_path).stdout


@pytest.mark.lengthy
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["bench", "--no"], "rescale-bench bench has no option --no: rescale-bench bench --help shows them all."),
        (["nothing"], "There is no task nothing: rescale-bench --list shows the tasks."),
        (["status"], "rescale-bench status needs --checkpoint: rescale-bench status --help says what that is."),
        (["compare", "--folders", "none"], "The folder none does not exist: name result folders, separated by commas."),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_bad_input_gets_one_sentence_that_names_it(words, sentence, tmp_path):
    refused = command(*words, folder=tmp_path)
    assert (refused.returncode, refused.stderr) == (2, f"{sentence}\n")


def test_it_says_its_version(capsys):
    assert main(["version"]) == 0
    assert capsys.readouterr().out.strip() == rescale_bench.__version__
    assert f"## {rescale_bench.__version__}" in (ROOT / "CHANGELOG.md").read_text()
    assert f"version: {rescale_bench.__version__}\n" in (ROOT / "CITATION.cff").read_text()
