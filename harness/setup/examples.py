"""Runs an example of the repository as its reader does, with this environment's Python."""

import os
import sys
from collections.abc import Sequence

from harness.files import ROOT
from impls.errors import UsageError


def run_example(name: str, words: Sequence[str]) -> None:
    """Runs an example of the repository in this process's place; raises UsageError where there is none of the name."""
    known = sorted(path.stem for path in (ROOT / "examples").glob("*.py"))
    if name not in known:
        raise UsageError(f"There is no example {name}: use one of {', '.join(known)}.")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    os.execv(sys.executable, [sys.executable, str(ROOT / "examples" / f"{name}.py"), *words])
