"""What tasks share: running a module of this project, and bad input as one sentence."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from invoke.context import Context
from invoke.exceptions import Exit

from harness.files import ROOT

__all__ = ["ROOT", "one_sentence", "run_module"]


@contextmanager
def one_sentence() -> Iterator[None]:
    """Turns a UsageError into its sentence and exit code 2."""
    from impls.errors import UsageError  # so that --list is fast

    try:
        yield
    except UsageError as error:
        raise Exit(str(error), code=2) from None


def run_module(c: Context, command: str) -> None:
    """Runs `python -m COMMAND` in the project's folder."""
    with c.cd(ROOT):
        c.run(f"{sys.executable} -m {command}", pty=sys.stdout.isatty())
