"""The folder of a result: an earlier one of the same parameters, or a new one; and why a run in it failed."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from harness.files import read_json, write_json
from harness.results.machine import describe_machine
from impls.errors import UsageError


class Described(Protocol):
    """An experiment, a sweep or a suite: its parameters with their `name`, and a short digest of them."""

    def digest(self) -> str:
        """Returns a short digest of all parameters."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:12]

    def to_json(self) -> dict[str, Any]:
        """Returns all parameters."""


def find_earlier(experiment: Described, output: Path, *, finished: bool) -> Path | None:
    """Returns the newest result folder of the same experiment that is finished (or not), None if there is none."""
    return find_folder(
        output, "experiment.json", lambda data: bool(data["digest"] == experiment.digest()), finished=finished
    )


def find_folder(output: Path, file: str, same: Callable[[dict[str, Any]], bool], *, finished: bool) -> Path | None:
    """Returns the newest folder below `output` whose JSON file is the same and that is finished (or not), or None."""
    for path in sorted(output.glob(f"*/{file}"), reverse=True):
        if (path.parent / "done").exists() == finished and same(json.loads(path.read_text())):
            return path.parent
    return None


def unchanged(folder: Path) -> bool:
    """Returns whether the code is still that of an earlier result."""
    before, now = json.loads((folder / "experiment.json").read_text())["environment"], describe_machine(0)
    return not now["dirty"] and not before["dirty"] and before["commit"] == now["commit"]


@contextmanager
def making(folder: Path) -> Iterator[None]:
    """Raises UsageError that names the folder where what is made in it raises OSError."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"The result folder {folder} cannot be made: {error.strerror}.") from error


def new_folder(output: Path, name: str) -> Path:
    """Makes the folder of a result, its name beginning with the time (UTC); raises UsageError where it cannot."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S-%f")[:-3]  # two may begin in one second
    folder = output / f"{stamp}-{name}"
    with making(folder):
        folder.mkdir(parents=True)
    return folder


def result_folder(suite: Described, output: Path, *, force: bool) -> Path:
    """Returns the newest result of the same code, finished or begun, or makes a new one with experiment.json.

    Args:
        suite: what is measured.
        output: parent folder of results.
        force: start a new result even if there is an earlier one.

    Raises:
        UsageError: the folder cannot be made.
    """
    for finished in () if force else (True, False):
        found = find_earlier(suite, output, finished=finished)
        if found is not None and unchanged(found):
            return found
    asked = suite.to_json()
    folder = new_folder(output, asked["name"])
    with making(folder):
        write_json(folder / "experiment.json", {**asked, "digest": suite.digest(), "environment": describe_machine(1)})
    return folder


FAILURE_FILE = "error.json"
_LOG_FILE = "run.log"


def write_failure(folder: Path, reason: str) -> None:
    """Keeps the reason, a sentence, in the run's folder."""
    write_json(folder / FAILURE_FILE, {"error": reason, "log": _LOG_FILE})


def failure_of(folder: Path) -> str:
    """Returns why a run failed, "" for one that did not."""
    return str(read_json(folder / FAILURE_FILE).get("error") or "")


def told_failure(folder: Path) -> str:
    """Returns why a run failed and where its log is, in one sentence."""
    reason = failure_of(folder) or "it left no result"
    return f"{reason.rstrip('.')}; its log is {folder / _LOG_FILE}."
