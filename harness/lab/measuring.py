"""Child processes that measure."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from generators.spec import GeneratorError
from generators.stdin import watch_stdin
from harness.files import ROOT, read_json, write_json
from harness.options import CUT_OFF
from impls.errors import StateError, UsageError

ASKED, FOUND = "asked.json", "measured.json"

_DEADLINE_S = 900.0
_S = TypeVar("_S")


def measure_here(
    folder: Path,
    settings: Callable[..., _S],
    measure: Callable[[Path, _S], Sequence[Any]],
    *,
    heavy: Sequence[str] = (),
) -> int:
    """Measures in this process what asked.json of a folder says into its measured.json, and ends with standard input.

    Args:
        folder: of the measurement.
        settings: makes settings of the fields that asked.json holds.
        measure: from the folder and settings to what is measured, dataclasses.
        heavy: patterns of folders in the folder that go once it is measured.

    Returns:
        The exit code: 0 done, 1 failed, 2 bad input.
    """
    watch_stdin(lambda: os._exit(CUT_OFF))
    try:
        measured = measure(folder, settings(**read_json(folder / ASKED)))
    except (UsageError, GeneratorError, StateError) as error:
        sys.stdout.write(json.dumps({"error": str(error)}) + "\n")
        return 1 if isinstance(error, StateError) else 2
    write_json(folder / FOUND, [asdict(one) for one in measured])
    for doomed in chain.from_iterable(folder.glob(pattern) for pattern in heavy):
        shutil.rmtree(doomed, ignore_errors=True)
    return 0


def measured_in_child(
    module: str, folder: Path, settings: Any, *, deadline_s: float = _DEADLINE_S
) -> list[dict[str, Any]]:
    """Returns what `python -m MODULE FOLDER` measures with settings, a dataclass; what is there already stays.

    Raises:
        StateError: it fails; its log is run.log in the folder.
    """
    findings = folder / FOUND
    if not findings.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / ASKED, asdict(settings))
        _run_child(module, folder, deadline_s)
    measured: list[dict[str, Any]] = json.loads(findings.read_text())
    return measured


def _run_child(module: str, folder: Path, deadline_s: float) -> None:
    """Runs the module; its standard input stays open as long as this process lives."""
    with (folder / "run.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", module, str(folder)],
            stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=ROOT, start_new_session=True,
        )  # fmt: skip
        assert process.stdin is not None
        try:
            code = process.wait(deadline_s)
        except BaseException:
            process.stdin.close()  # which ends it
            process.wait()
            raise
        process.stdin.close()
    if code:
        raise StateError(f"The measurement in {folder} failed; its log is {folder / 'run.log'}.")
