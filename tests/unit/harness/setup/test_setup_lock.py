"""The lock files agree: what a run needs is part of what the project's workers install, in the same versions."""

import re
import tomllib
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[4]
_PINNED = re.compile(r"^([\w.-]+)(?:\[[^]]*\])?==(\S+)", re.MULTILINE)


def _pinned(name):
    return set(_PINNED.findall((_ROOT / name).read_text()))


def _names(requirements):
    return {re.match(r"[\w.-]+", text)[0].lower() for text in requirements}


def test_what_a_run_needs_is_locked_in_the_same_versions_and_nothing_else_is_in_it():
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())
    run, whole = _pinned("requirements-run.lock"), _pinned("requirements.lock")
    assert run < whole
    extras = project["project"]["optional-dependencies"]
    needed = _names([*project["project"]["dependencies"], *extras["bench"]])
    assert needed <= {name for name, _ in run}
    others = _names([*project["dependency-groups"]["dev"], *extras["s3"], *extras["docs"]]) - {"setuptools"}
    assert not others & needed
    assert others <= {name for name, _ in whole}


def test_the_s3_server_is_locked_in_the_same_versions():
    server, whole = _pinned("requirements-s3.lock"), _pinned("requirements.lock")
    assert server < whole
    wanted = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["s3"]
    assert _names(wanted) <= {name for name, _ in server}
    assert "pyspark" not in {name for name, _ in server}
