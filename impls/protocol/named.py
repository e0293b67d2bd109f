"""Policies that a text names: the module of a folder that defines a function, with options NAME:OPTION=VALUE,..."""

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from impls.errors import UsageError


def modules_with(folder: Path, package: str, function: str) -> dict[str, Any]:
    """Returns, by module name, what the modules of a folder define as `function`; those without it are left out."""
    stems = [path.stem for path in sorted(folder.glob("*.py")) if path.stem != "__init__"]
    found = {stem: vars(import_module(f"{package}.{stem}")).get(function) for stem in stems}
    return {name: value for name, value in found.items() if value is not None}


def defaults_of(function: Callable[..., Any]) -> dict[str, float]:
    """Returns the options of a policy with their defaults: its keyword-only parameters."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


def read_policy(what: str, text: str, policies: Mapping[str, Callable[..., Any]]) -> tuple[str, dict[str, float]]:
    """Returns (name, options) of a policy that a text names as NAME:OPTION=VALUE,OPTION=VALUE.

    Args:
        what: kind of policy, as errors name it.
        text: the policy, such as ds2:utilisation=0.8.
        policies: those there are, by name.

    Raises:
        UsageError: an unknown policy or option, or a value that is no number.
    """
    name, _, options = text.partition(":")
    if name not in policies:
        raise UsageError(f"The {what} {name!r} is unknown: use one of {', '.join(policies)}.")
    return name, _read_options(what, name, options, defaults_of(policies[name]))


def _read_options(what: str, name: str, text: str, known: Mapping[str, float]) -> dict[str, float]:
    """Returns the options of A=1,B=2, each of the type of its default in `known`."""
    out: dict[str, float] = {}
    for part in text.split(",") if text else []:
        option, _, value = part.strip().partition("=")
        if option not in known:
            takes = f"it takes {', '.join(known)}" if known else "it takes none"
            raise UsageError(f"The {what} {name!r} has no option {option!r}: {takes}.")
        try:
            out[option] = type(known[option])(value)
        except ValueError:
            kind = "a whole number" if isinstance(known[option], int) else "a number"
            raise UsageError(f"The option {option!r} of the policy {name!r} is {kind}, not {value!r}.") from None
    return out
