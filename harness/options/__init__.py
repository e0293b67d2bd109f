"""What commands share: lists and numbers in their options, and how every command ends."""

import os
import sys
from collections.abc import Callable, Iterable
from functools import wraps
from typing import ParamSpec

from generators.spec import GeneratorError
from impls.errors import StateError, UsageError

CUT_OFF = 130  # as a shell has it for a program that SIGINT ended
_NOT_READ = 141  # the same of SIGPIPE
_SUFFIX = {"k": 1_000, "m": 1_000_000, "g": 1_000_000_000}
_P = ParamSpec("_P")
_UNITS = {"": 1, **_SUFFIX, "t": 10**12}


def parse_list(text: str) -> tuple[str, ...]:
    """Reads words separated by commas, without the empty ones."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def parse_names(text: str, known: Iterable[str], what: str) -> tuple[str, ...]:
    """Reads names separated by commas; raises UsageError for one that is not known."""
    known = tuple(known)
    names = parse_list(text)
    for name in names:
        if name not in known:
            raise UsageError(f"The {what} {name!r} is unknown: use one of {', '.join(known)}.")
    return names


def parse_number(text: str | float, what: str) -> int:
    """Reads 4000000, 4e6 or 4M; raises UsageError for anything else or below 1."""
    raw = str(text).strip().lower()
    scale = _SUFFIX.get(raw[-1:], 1)
    try:
        value = float(raw[:-1] if scale > 1 else raw) * scale
    except ValueError:
        raise UsageError(f"{what} must be a number such as 4000000, 4e6 or 4M, not {text!r}.") from None
    if not 1 <= value < 1e15 or value != int(value):
        raise UsageError(f"{what} must be a whole number from 1, not {text!r}.")
    return int(value)


def parse_workers(text: str | int) -> tuple[int, int]:
    """Reads "4" or "4:8" into (workers, workers after the rescale)."""
    parts = str(text).split(":")
    if len(parts) > 2:
        raise UsageError(f"Workers must be given as N or FROM:TO, not {text!r}.")
    numbers = [parse_number(part, "The number of workers") for part in parts]
    return numbers[0], numbers[-1]


def parse_bytes(text: str | float, what: str) -> int:
    """Reads 1TB, 1e12 or 500G (powers of ten); raises UsageError for anything else or below 1."""
    raw = str(text).strip().lower().removesuffix("b").strip()
    unit = raw[-1:] if raw[-1:].isalpha() else ""
    try:
        value = float(raw.removesuffix(unit)) * _UNITS[unit]
    except (ValueError, KeyError):
        raise UsageError(f"{what} must be a number of bytes such as 1TB, 500G or 1e12, not {text!r}.") from None
    if not 1 <= value < 1e18:
        raise UsageError(f"{what} must be at least 1 byte and below 1e18, not {text!r}.")
    return int(value)


def ending(cut_off: str = "") -> Callable[[Callable[_P, int]], Callable[_P, int]]:
    """Returns a decorator that makes exit codes of errors: 2 for bad input, 1 for a failure, 130 when cut off.

    It is 141 where the output is not read to its end. The error's sentence goes to standard error, and `cut_off` when
    the command is cut off.
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
            except BrokenPipeError:  # whoever reads the output wants no more of it, as `head`
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left goes there at the exit
                return _NOT_READ
            except KeyboardInterrupt:
                sys.stderr.write(f"{cut_off}\n" if cut_off else "")
                return CUT_OFF

        return ended

    return decorated
