"""Why a run failed: kept in its folder, and told with the path of its log."""

import signal
from pathlib import Path

from harness.files import read_json, write_json

__all__ = ["FAILURE_FILE", "failure_of", "how_it_ended", "told_failure", "write_failure"]

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


def how_it_ended(code: int) -> str:
    """Returns in a sentence how a run's process ended that did not say why itself."""
    if code >= 0:
        return f"The run's process ended with exit code {code}."
    known = {number.value: number.name for number in signal.Signals}
    return f"The run's process was killed by {known.get(-code, f'signal {-code}')}."
