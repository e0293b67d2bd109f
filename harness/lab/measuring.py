"""Programs that measure: settings, a dataclass, in the folder's asked.json; what is measured in its measured.json."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from harness.files import read_json, write_json
from harness.lab.child import Child, Parent, program
from impls.errors import StateError

ASKED, FOUND = "asked.json", "measured.json"

_DEADLINE_S = 900.0
_S = TypeVar("_S")


def measure_here(
    settings: Callable[..., _S], measure: Callable[[Path, _S], Sequence[Any]], *, heavy: Sequence[str] = ()
) -> int:
    """Measures in this process what the folder of the command line asks for, and returns the exit code.

    Args:
        settings: makes settings of the fields that asked.json holds.
        measure: from the folder and settings to what is measured, dataclasses.
        heavy: patterns of folders in the folder that go once it is measured.
    """

    def work(folder: Path, _: Parent) -> None:
        measured = measure(folder, settings(**read_json(folder / ASKED)))
        write_json(folder / FOUND, [asdict(one) for one in measured])
        for doomed in chain.from_iterable(folder.glob(pattern) for pattern in heavy):
            shutil.rmtree(doomed, ignore_errors=True)

    return program(work, patient=False)


def measured_in_child(
    module: str, folder: Path, settings: Any, *, deadline_s: float = _DEADLINE_S
) -> list[dict[str, Any]]:
    """Returns what the program `module` measures in a folder with settings, a dataclass; what is there already stays.

    Raises:
        StateError: it fails, or takes longer; its log is run.log in the folder.
    """
    if not (folder / FOUND).exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / ASKED, asdict(settings))
        with Child(module, folder, said="said.jsonl") as child:
            ended = child.wait(deadline_s)
        if ended.code:
            raise StateError(f"{str(ended).rstrip('.')}; the log of the measurement is {folder / 'run.log'}.")
    measured: list[dict[str, Any]] = json.loads((folder / FOUND).read_text())
    return measured
