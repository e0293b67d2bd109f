"""How every command ends: an exit code, and a sentence where there is something to say."""

import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

from generators.errors import GeneratorError
from harness.options import CUT_OFF
from impls.errors import StateError, UsageError

__all__ = ["ending"]

_P = ParamSpec("_P")


def ending(cut_off: str = "") -> Callable[[Callable[_P, int]], Callable[_P, int]]:
    """Returns a decorator that makes exit codes of errors: 2 for bad input, 1 for a failure, 130 when cut off.

    The error's sentence goes to standard error, and `cut_off` when the command is cut off.
    """

    def decorated(run: Callable[_P, int]) -> Callable[_P, int]:
        @wraps(run)
        def ended(*arguments: _P.args, **named: _P.kwargs) -> int:
            try:
                return run(*arguments, **named)
            except (UsageError, GeneratorError) as error:
                sys.stderr.write(f"{error}\n")
                return 2
            except StateError as error:
                sys.stderr.write(f"{error}\n")
                return 1
            except KeyboardInterrupt:
                sys.stderr.write(f"{cut_off}\n" if cut_off else "")
                return CUT_OFF

        return ended

    return decorated
