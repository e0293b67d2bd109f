"""Twelve faults on real processes in about three minutes, and what `./inv fault-test` leaves when it is cut off."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pipeline import await_true
from processes import spawn, working_on
from rich.console import Console

from harness.suites.faults.run import CHAIN, fault_test
from harness.suites.faults.schedule import QUICK_MECHANISMS, draw_chain_schedule, draw_schedule

pytestmark = pytest.mark.timeout(600)
ROOT = Path(__file__).parents[2]
SEED = 1


@pytest.mark.parametrize("mechanism", QUICK_MECHANISMS)
def test_twelve_faults_lose_and_double_nothing(mechanism, tmp_path, capsys):
    schedule = [fault for fault in draw_schedule(SEED, quick=True) if fault.mechanism == mechanism]
    with capsys.disabled():
        report, _ = fault_test(
            schedule, tmp_path, seed=SEED, durability="process", console=Console(quiet=True, width=200)
        )
    assert not working_on(tmp_path)
    ended = {line["name"]: (line["verdict"], line["said"]) for line in report["faults"]}
    expected = {"survives": "survived", "refuses": "refused"}
    assert {name: verdict for name, (verdict, _) in ended.items()} == {
        fault.name: expected[fault.expected] for fault in schedule
    }, ended
    assert [(name, c["verdict"], c["reasons"]) for name, c in report["campaigns"].items()] == [
        (name, "valid", []) for name in report["campaigns"]
    ]
    totals = report["totals"]
    assert [totals[name] for name in ("faults", "lost", "doubled", "wrong", "stuck")] == [6, 0, 0, 0, 0]
    assert report["good"]
    assert all(line["resume_s"] > 0 for line in report["faults"])


@pytest.mark.parametrize("mode", ["micro-batch", "real-time"])
def test_faults_of_a_chain_lose_and_double_nothing(mode, tmp_path, capsys):
    schedule = draw_chain_schedule(SEED, ["megaphone-batched"], only=["worker@after-commit", "driver@after-plan"])
    with capsys.disabled():
        report, _ = fault_test(
            schedule, tmp_path, seed=SEED, durability="process", console=Console(quiet=True), where=CHAIN, mode=mode
        )
    assert report["good"], report
    assert not working_on(tmp_path)


def fault_test_process(output: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-P", "-m", "invoke", "fault-test", "--output", str(output), *options]
    return spawn(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--only=mouse@after-commit"], "The fault 'mouse@after-commit' is unknown"),
        (["--mechanism=teleport"], "The mechanism 'teleport' is unknown"),
        (["--durability=eternal"], "The durability 'eternal' is unknown"),
        (["--chain", "--only=disk@full"], "The fault 'disk@full' is unknown"),
        (["--chain", "--cluster=2"], "Real-time mode and chains are tested in one process of Spark"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path, options, words):
    process = fault_test_process(tmp_path, *options)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said.count("\n")) == (2, 1)
    assert said.startswith(words)
    assert not list(tmp_path.iterdir())


@pytest.mark.capability
def test_ctrl_c_leaves_no_process_and_a_report(tmp_path):
    process = fault_test_process(tmp_path, "--mechanism=megaphone-fluid", "--only=worker@stopped,broker@unreachable")
    await_true(lambda: bool(list(tmp_path.glob("*/*/fault.json.fired"))), "the first fault", 120)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert (Path(out.splitlines()[-1]) / "faults.json").exists()
    await_true(lambda: not working_on(tmp_path), "all processes to end", 30)
