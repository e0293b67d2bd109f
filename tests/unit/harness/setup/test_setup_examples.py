"""An example is run by its name; another name gets a sentence with those there are."""

import subprocess

import pytest

from harness.files import ROOT
from harness.setup.examples import run_example
from impls.errors import UsageError


def test_an_unknown_example_is_refused_with_those_there_are():
    with pytest.raises(UsageError, match=r"^There is no example none: use one of chain, .*, sessions\.$"):
        run_example("none", [])


@pytest.mark.lengthy
def test_the_command_runs_an_example_as_its_reader_does(tmp_path):
    command = [ROOT / "inv", "example", "sessions", "--kafka", "127.0.0.1:1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stdout.startswith("Sessions: the clicks of each user")
    assert "The broker at 127.0.0.1:1 does not answer" in done.stderr
