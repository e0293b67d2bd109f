"""The wrapper `inv` and the environment it makes: offline here, so with an empty lock file."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.files import ROOT
from harness.setup import doctor, environment


def wrapper(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    (folder / "harness" / "setup").mkdir(parents=True, exist_ok=True)
    for name in ("inv", "requirements.lock", "harness/setup/environment.py"):
        shutil.copy(ROOT / name, folder / name)
    environ = {"PATH": os.environ["PATH"], **variables}
    return subprocess.run(
        [folder / "inv", *arguments], cwd="/", env=environ, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        (
            {"RESCALE_PYTHON": "no-such-python"},
            "RESCALE_PYTHON=no-such-python is not a Python 3.11 or newer that runs.\n",
        ),
        (
            {"PATH": "{tools}"},
            "Python 3.11 or newer was not found: install it, or set RESCALE_PYTHON to the program.\n",
        ),
    ],
)
def test_without_python_the_wrapper_says_one_sentence(tmp_path, variables, sentence):
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("dirname", "cksum", "cat"):
        (tools / name).symlink_to(shutil.which(name) or name)
    done = wrapper(tmp_path, "--list", **{key: value.format(tools=tools) for key, value in variables.items()})
    assert (done.returncode, done.stderr) == (2, sentence)


def test_a_folder_with_other_files_is_left_alone(tmp_path):
    (tmp_path / "precious").write_text("mine")
    done = wrapper(tmp_path / "repository", RESCALE_VENV=str(tmp_path), RESCALE_PYTHON=sys.executable)
    assert done.returncode == 2
    assert "holds other files and is no virtual environment" in done.stderr
    assert (tmp_path / "precious").read_text() == "mine"


@pytest.mark.lengthy
def test_an_environment_is_made_once_and_again_after_a_cut(tmp_path):
    folder, lock = tmp_path / "venv", tmp_path / "lock"
    lock.write_text("")
    environment.ensure(folder, lock, "1")
    made = (folder / "pyvenv.cfg").stat().st_ino, (folder / ".complete").stat().st_mtime_ns
    environment.ensure(folder, lock, "1")
    assert made == ((folder / "pyvenv.cfg").stat().st_ino, (folder / ".complete").stat().st_mtime_ns)
    (folder / ".complete").unlink()
    (folder / "half-installed").touch()
    environment.ensure(folder, lock, "1")
    assert not (folder / "half-installed").exists()
    assert (folder / ".complete").read_text() == "1"


@pytest.mark.lengthy
def test_a_failed_installation_is_one_sentence_with_its_log(tmp_path, monkeypatch):
    (tmp_path / "lock").write_text("no-hash-for-this==1\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(SystemExit, match=r"^The dependencies could not be installed: .*install\.log"):
        environment.ensure(tmp_path / "venv", tmp_path / "lock", "1")
    assert not (tmp_path / "venv" / ".complete").exists()


def test_the_lock_file_has_hashes_and_no_address():
    text = (ROOT / "requirements.lock").read_text()
    assert "://" not in text
    assert "--index-url" not in text
    assert "--find-links" not in text
    pinned = [line for line in text.splitlines() if line and not line.startswith((" ", "#"))]
    assert pinned
    assert all("==" in line and line.endswith("\\") for line in pinned)


def test_doctor_knows_how_to_get_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    findings = {finding.item: finding for finding in doctor.examine()}
    assert not findings["Java"].ok
    assert "install" in findings["Java"].remedy
    assert findings["Python"].ok
    assert not findings["docker"].needed
    text = "\n".join(doctor.lines(list(findings.values())))
    assert all(f" {item} " in text for item in findings)
    assert "missing   Java" in text
