"""The mechanisms there are: every folder with a mechanism.py, found by glob."""

import dataclasses
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from impls.errors import UsageError
from impls.mechanism import Mechanism

__all__ = ["make", "names", "options"]


@cache
def _mechanisms() -> dict[str, Callable[..., Mechanism]]:
    found: dict[str, Callable[..., Mechanism]] = {}
    for path in sorted(Path(__file__).parent.glob("*/mechanism.py")):
        found.update(import_module(f"impls.{path.parent.name}.mechanism").MECHANISMS)
    return found


def names() -> list[str]:
    """Returns the names of all mechanisms, sorted."""
    return sorted(_mechanisms())


def options(name: str) -> dict[str, Any]:
    """Returns a mechanism's options with their defaults; raises UsageError for an unknown mechanism."""
    if name not in _mechanisms():
        raise UsageError(f"The mechanism {name!r} is unknown: use one of {', '.join(names())}.")
    kind = _mechanisms()[name]
    return {f.name: f.default for f in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else {}


def make(name: str, **given: Any) -> Mechanism:
    """Returns a mechanism with options; raises UsageError for an unknown name or option, or a value it refuses."""
    known = options(name)
    for option, value in given.items():
        if option not in known:
            takes = f"it takes {', '.join(known)}" if known else "it takes none"
            raise UsageError(f"The mechanism {name!r} has no option {option!r}: {takes}.")
        if type(value) is not type(known[option]):
            raise UsageError(f"The option {option!r} must be of type {type(known[option]).__name__}, not {value!r}.")
    return _mechanisms()[name](**given)
