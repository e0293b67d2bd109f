"""Bad input: one clear sentence on standard error, exit code 2, nothing written, nothing left running."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.results.summary import validate
from harness.suites.bench import run_bench
from impls.errors import UsageError

ROOT = Path(__file__).parents[2]
CASES = {
    "unknown mechanism": ({"mechanism": "teleport"}, "'teleport' is unknown: use one of"),
    "no mechanism": ({"mechanism": ","}, "No mechanism is named"),
    "bins no power of two": ({"bins": "3"}, "power of two from 2 to 16384, not 3"),
    "too many bins": ({"bins": "32768"}, "power of two from 2 to 16384"),
    "fewer bins than workers": ({"bins": "2", "workers": "4"}, "2 bins are too few for 4 workers"),
    "fewer bins than the goal's workers": ({"bins": "4", "workers": "4:8"}, "4 bins are too few for 8 workers"),
    "rate of nothing": ({"rate": "0"}, "rate must be a whole number from 1"),
    "rate beyond the generator": ({"rate": "50M"}, "at most 1000000 records per second, not 50000000"),
    "keys that are no number": ({"keys": "many"}, "must be a number such as 4000000, 4e6 or 4M, not 'many'"),
    "fewer keys than bins": ({"keys": "100"}, "100 keys are too few for 256 bins"),
    "workers that are no number": ({"workers": "4:x"}, "number of workers must be a number"),
    "three worker counts": ({"workers": "1:2:3"}, "N or FROM:TO, not '1:2:3'"),
    "no worker": ({"workers": "0"}, "number of workers must be a whole number from 1"),
    "pattern with one worker": ({"workers": "1"}, "pattern needs at least 2 workers"),
    "unknown workload": ({"workload": "wordcount"}, "workload 'wordcount' is unknown: use one of dense, hash, nexmark"),
    "unknown distribution": ({"distribution": "normal"}, "normal"),
    "impossible exponent": ({"distribution": "zipf", "exponent": "-1"}, "exponent"),
    "seed that is no number": ({"seed": "lucky"}, "--seed takes a number, not 'lucky'"),
    "unknown policy": (
        {"policy": "random"},
        "policy 'random' is unknown: use one of consistent_hashing, contiguous, load_aware, minimal_move",
    ),
    "policy without that option": ({"policy": "load_aware:speed=2"}, "it takes imbalance, size_share"),
    "unknown rate shape": ({"rate_shape": "square"}, "rate shape 'square' is unknown: use one of constant, step"),
    "rate shape without that option": ({"rate_shape": "sine:speed=2"}, "it takes amplitude, period"),
    "peak beyond the generator": ({"rate": "30k", "rate_shape": "step:1=50"}, "per second, not 1500000"),
    "rates that are not there": ({"rate_shape": "csv:no-such.csv"}, "no-such.csv cannot be read"),
    "drift without that option": ({"distribution": "drift:size=2"}, "it takes keys, share, speed"),
    "unknown cost": ({"cost": "think"}, "wait or compute, not 'think'"),
    "cost that is no number": ({"cost_us": "dear"}, "--cost-us takes a number, not 'dear'"),
    "cost below nothing": ({"cost_us": "-1"}, "cost of a record must be from 0"),
    "value bytes of counts": (
        {"workload": "dense", "value_bytes": "100"},
        "dense keeps counts only: leave out --value-bytes",
    ),
    "value bytes beyond reason": ({"workload": "hash", "value_bytes": "99999999"}, "from 0 to 1048576"),
    "unknown query": ({"workload": "nexmark", "query": "q42"}, "no NEXMark query 'q42': use one of q0, q1"),
    "query of another workload": ({"query": "q4", "workload": "hash"}, "belong to --workload nexmark"),
    "too short": ({"duration": "1"}, "at least 3 seconds"),
    "option nobody knows": (
        {"mechanism": "none", "option": "bins_per_pair=4"},
        "None of the mechanisms chosen has the option",
    ),
    "impossible option": ({"option": "bins_per_pair=0"}, "bins_per_pair must be at least 1"),
    "plan file that is not there": ({"migration": "no-such.plan"}, "no-such.plan cannot be read"),
    "silent broker": ({"bootstrap_servers": "127.0.0.1:1"}, "The broker at 127.0.0.1:1 does not answer"),
    "more keys than disk": ({"keys": "1000G"}, "GiB are free"),
    "nothing to resume": ({"resume": True}, "no unfinished result"),
}


@pytest.mark.parametrize("case", CASES)
def test_one_sentence_and_exit_code_2(case, tmp_path, capsys):
    options, says = CASES[case]
    assert run_bench({"output": str(tmp_path / "results"), **options}) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1, err
    assert "Traceback" not in err
    assert says in err
    assert not list((tmp_path / "results").glob("*/*")), "nothing may be written"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("10 move 3", "line 1: expected"),
        ("10 move 3 1\n5 move 4 1", "line 2: the time 5 lies before"),
        ("10 move 300 1", "line 1: bin 300 does not exist"),
        ("# a comment\n10 move 3 9", "line 2: worker 9 does not exist"),
        ("10 map 0 1 2", "line 1: expected"),
        ("# nothing", "asks for nothing"),
    ],
)
def test_a_bad_plan_file_is_named_with_its_line(tmp_path, capsys, text, says):
    (tmp_path / "bad.plan").write_text(text)
    assert run_bench({"output": str(tmp_path), "migration": str(tmp_path / "bad.plan")}) == 2
    assert says in capsys.readouterr().err


def test_no_java(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("harness.setup.java._candidates", list)
    assert run_bench({"output": str(tmp_path)}) == 2
    assert "Java 17" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["output", "state_dir"])
def test_a_folder_that_is_a_file(tmp_path, capsys, option):
    (tmp_path / "file").write_text("")
    assert run_bench({"output": str(tmp_path / "results"), option: str(tmp_path / "file")}) == 2
    assert "file cannot be made: File exists" in capsys.readouterr().err


def test_a_result_of_another_schema(tmp_path):
    (tmp_path / "result.json").write_text(json.dumps({"schema": 99}))
    with pytest.raises(UsageError, match="99"):
        validate(tmp_path / "result.json")


@pytest.mark.capability
def test_the_command_line_itself_says_it_in_one_line(tmp_path):
    command = [sys.executable, "-P", "-m", "invoke", "bench", "--mechanism", "teleport", "--output", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


def test_a_command_to_a_query_that_does_not_run(tmp_path):
    command = [sys.executable, "-P", "-m", "invoke", "rescale", "--checkpoint", str(tmp_path), "--workers", "4"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "No running query answers" in done.stderr
