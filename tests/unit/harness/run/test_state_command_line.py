"""`./inv state` on a checkpoint: what it prints, and that it ends where its output is not read."""

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from timed import TimedRun, close_all

from harness.run.state import run_state
from impls.operators import HashCount

ROOT = Path(__file__).parents[4]
KEYS = 3_000


@pytest.fixture
def checkpoint(tmp_path):
    run = TimedRun(tmp_path, HashCount(preload=KEYS), key="long")
    run.epoch([(0, 7, {})])
    run.epoch([(0, 7, {}), (0, -1, {})])
    yield str(tmp_path / "checkpoint")
    close_all()


def told(capsys, checkpoint, epoch=None, **more):
    options = {"key": None, "into": None, "against": None, "as_json": False, "limit": 2}
    code = run_state(checkpoint, epoch, None, **options | more)
    return code, capsys.readouterr()


def test_rows_are_shown_up_to_a_limit_and_counted(checkpoint, capsys):
    code, said = told(capsys, checkpoint)
    assert code == 0
    assert len(said.out.splitlines()) == 4
    assert "3,001 rows of 3,001 keys at the end of epoch 1; the first 2 are shown, --json shows all" in said.out


@pytest.mark.parametrize(("epoch", "count"), [(0, 1), (1, 2), (None, 2)])
def test_a_key_is_shown_as_it_was_at_the_end_of_an_epoch(checkpoint, capsys, epoch, count):
    code, said = told(capsys, checkpoint, epoch, key="7", as_json=True)
    assert code == 0
    assert f'"value": {count}' in said.out
    assert len(said.out.splitlines()) == 1


def test_epochs_are_compared(checkpoint, capsys):
    _, said = told(capsys, checkpoint, against=0)
    assert "1 new, 0 gone, 1 changed" in said.out
    _, said = told(capsys, checkpoint, against=0, key="7")
    assert "0 new, 0 gone, 1 changed" in said.out
    _, said = told(capsys, checkpoint, 0, against=1, as_json=True)
    assert {line.split(",")[0] for line in said.out.splitlines()} == {'{"what": "gone"', '{"what": "changed"'}


def test_a_folder_is_written_once_and_whole(checkpoint, capsys, tmp_path):
    code, said = told(capsys, checkpoint, into=str(tmp_path / "out"))
    assert code == 0
    assert pq.read_table(said.out.splitlines()[-1]).num_rows == KEYS + 1
    code, said = told(capsys, checkpoint, into=str(tmp_path / "other"), key="7")
    assert (code, said.err) == (2, "--into writes all rows: leave out --key, --against and --json.\n")
    code, said = told(capsys, checkpoint, into=str(tmp_path / "out"))
    assert code == 2
    assert "is there already" in said.err


@pytest.mark.lengthy
def test_an_output_that_is_not_read_to_its_end_is_no_failure(checkpoint):
    command = [sys.executable, "-P", "-m", "invoke", "state", checkpoint, "--json"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, **pipes) as process:
        assert process.stdout.readline().startswith(b'{"bin": 0')
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 141
