"""`./inv bench` whose driver is killed during a migration, and Ctrl-C: nothing left over, `--resume` goes on."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pipeline import await_true
from processes import spawn, working_on

from harness.measure.windows import TAGS

pytestmark = pytest.mark.timeout(600)
ROOT = Path(__file__).parents[2]
OPTIONS = [
    "--mechanism=megaphone-fluid", "--keys=20k", "--rate=1000", "--arrivals=40", "--duration=12", "--bins=64",
    "--workers=2:4",
]  # fmt: skip


def bench(output: Path, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "invoke", "bench", "--output", str(output), *OPTIONS, *more]
    return spawn(command, cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True)


def lines(path: Path) -> list[dict]:
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def half_migrated(output: Path) -> bool:
    files = list(output.glob("*/runs/*/epochs.jsonl"))
    return bool(files) and any(line["migrating"] and 0 < line["misplaced"] < 24 for line in lines(files[0]))


def test_a_driver_killed_during_a_migration_is_resumed(tmp_path):
    first = bench(tmp_path)
    await_true(lambda: half_migrated(tmp_path), "the migration to be half done", 120)
    driver = next(p for p in working_on(tmp_path) if "harness.run.process" in p.cmdline())
    os.kill(driver.pid, signal.SIGKILL)
    first.communicate(timeout=120)
    assert first.returncode == 1
    await_true(lambda: not working_on(tmp_path), "the processes of the killed run to end", 30)
    run = next(tmp_path.glob("*/runs/*"))
    epochs_before = lines(run / "epochs.jsonl")[-1]["epoch"]
    schedule = json.loads((run / "load.json").read_text())
    assert json.loads((run.parents[1] / "result.json").read_text())["runs"][0]["verdict"] == "unknown"

    second = bench(tmp_path, "--resume")
    out, _ = second.communicate(timeout=300)
    result = json.loads((run.parents[1] / "result.json").read_text())
    entry = result["runs"][0]
    assert (entry["verdict"], entry["reasons"]) == ("valid", []), entry["reasons"]
    assert second.returncode == 0
    assert out.decode().splitlines()[-1] == str(run.parents[1])
    load = json.loads((run / "load.json").read_text())
    assert load["due_by_second"][: len(schedule["due_by_second"])] == schedule["due_by_second"], (
        "the schedule must stay"
    )
    assert load["end_s"] >= schedule["end_s"]  # it goes on until steady state is back
    # `unmet` says why it went on to its limit, which passes while no driver runs too: on a busy machine all of it may
    goes_on = ("end_s", "records", "due_by_second", "unmet")
    assert {k: v for k, v in load.items() if k not in goes_on} == {
        k: v for k, v in schedule.items() if k not in goes_on
    }
    plans = [line for line in lines(run / "plan.jsonl") if line["epoch"] == epochs_before + 1]
    assert plans, "the epoch after the last one observed must have been run"
    assert {line["generation"] for line in lines(run / "plan.jsonl")} == {1, 2}
    assert json.loads((run / "generator.json").read_text())["already_there"] > 0
    assert not working_on(tmp_path)


@pytest.mark.capability
def test_ctrl_c_ends_cleanly_with_what_was_measured(tmp_path):
    process = bench(tmp_path)
    await_true(lambda: half_migrated(tmp_path), "the migration to be half done", 120)
    os.killpg(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    folder = Path(out.decode().splitlines()[-1])
    assert (folder / "report.html").exists()
    latency = json.loads((folder / "result.json").read_text())["runs"][0]["latency_ms"]
    measured = sum(latency[tag]["count"] for tag in TAGS)  # a busy machine has not warmed up by then
    (epochs,) = folder.glob("runs/*/epochs.jsonl")
    assert 0 < measured <= sum(line["records"] for line in lines(epochs))
    await_true(lambda: not working_on(tmp_path), "all processes to end", 30)
