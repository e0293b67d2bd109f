"""What tasks share: running a module of this project."""

import sys

from invoke.context import Context

from harness.files import ROOT

__all__ = ["ROOT", "run_module"]


def run_module(c: Context, command: str) -> None:
    """Runs `python -m COMMAND` in the project's folder."""
    with c.cd(ROOT):
        c.run(f"{sys.executable} -m {command}", pty=sys.stdout.isatty())
