"""The folder of a suite's result: that of the same code, finished or begun, or a new one."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from harness.bench import Described, find_earlier, unchanged
from harness.files import write_json
from harness.results.environment import environment
from impls.errors import UsageError

__all__ = ["Suite", "result_folder"]


class Suite(Described, Protocol):
    """Several experiments with one result: its parameters with their `name`, and a digest of them."""

    def to_json(self) -> dict[str, Any]:
        """Returns all parameters."""


def result_folder(suite: Suite, output: Path, *, force: bool) -> Path:
    """Returns the newest result of the same code, finished or begun, or makes a new one with experiment.json.

    Args:
        suite: what is measured.
        output: parent folder of results.
        force: begin anew whatever is there.

    Raises:
        UsageError: the folder cannot be made.
    """
    for finished in () if force else (True, False):
        found = find_earlier(suite, output, finished=finished)
        if found is not None and unchanged(found):
            return found
    asked = suite.to_json()
    folder = output / f"{datetime.now(UTC).strftime('%Y%m%d-%H%M%S')}-{asked['name']}"
    try:
        folder.mkdir(parents=True)
        write_json(folder / "experiment.json", {**asked, "digest": suite.digest(), "environment": environment(1)})
    except OSError as error:
        raise UsageError(f"The result folder {folder} cannot be made: {error.strerror}.") from error
    return folder
