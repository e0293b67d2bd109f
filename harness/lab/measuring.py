"""Child processes that measure."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from generators.errors import GeneratorError
from generators.stdin import watch_stdin
from harness.files import ROOT, read_json, write_json
from harness.options import CUT_OFF
from impls.errors import StateError, UsageError

__all__ = ["measure_here", "measure_in_child"]

_DEADLINE_S = 900.0


def measure_here(folder: Path, asked: str, measure: Callable[[dict[str, Any]], Sequence[Any]], found: str) -> int:
    """Measures in this process what the file `asked` of a folder says, and ends with its standard input.

    Args:
        folder: of the measurement; what is measured is written to its file `found`.
        asked: name of a JSON file with settings.
        measure: from settings to what is measured, dataclasses.
        found: name of a JSON file.

    Returns:
        The exit code: 0 done, 1 failed, 2 bad input.
    """
    watch_stdin(lambda: os._exit(CUT_OFF))
    try:
        measured = measure(read_json(folder / asked))
    except (UsageError, GeneratorError, StateError) as error:
        sys.stdout.write(json.dumps({"error": str(error)}) + "\n")
        return 1 if isinstance(error, StateError) else 2
    write_json(folder / found, [asdict(one) for one in measured])
    return 0


def measure_in_child(module: str, folder: Path) -> None:
    """Runs `python -m MODULE FOLDER`; its standard input stays open as long as this process lives.

    Raises:
        StateError: it fails; its log is run.log in the folder.
    """
    with (folder / "run.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", module, str(folder)],
            stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=ROOT, start_new_session=True,
        )  # fmt: skip
        assert process.stdin is not None
        try:
            code = process.wait(_DEADLINE_S)
        except BaseException:
            process.stdin.close()  # which ends it
            process.wait()
            raise
        process.stdin.close()
    if code:
        raise StateError(f"The measurement in {folder} failed; its log is {folder / 'run.log'}.")
