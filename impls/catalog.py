"""The mechanisms and baselines there are: every folder with a mechanism.py or a baseline.py, found by glob."""

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from impls.errors import UsageError
from impls.mechanisms.native_spark.native import NATIVES
from impls.protocol.mechanism import Mechanism


@cache
def _load_entries(module: str, table: str) -> dict[str, Callable[..., Any]]:
    """Returns the entries of a table that modules of one name have in the mechanisms' folders."""
    found: dict[str, Callable[..., Any]] = {}
    for path in sorted(Path(__file__).parent.glob(f"mechanisms/*/{module}.py")):
        found.update(getattr(import_module(f"impls.mechanisms.{path.parent.name}.{module}"), table))
    return found


def _mechanisms() -> dict[str, Callable[..., Mechanism]]:
    return _load_entries("mechanism", "MECHANISMS")


def _engines() -> dict[str, Callable[..., Any]]:
    return _load_entries("baseline", "BASELINES")


def names() -> list[str]:
    """Returns the names of all mechanisms of this runtime, sorted."""
    return sorted(_mechanisms())


def natives() -> list[str]:
    """Returns the names of the baselines on Spark's own state, sorted."""
    return sorted(NATIVES)


def engines() -> list[str]:
    """Returns the names of the baselines on other engines, sorted."""
    return sorted(_engines())


def baselines() -> list[str]:
    """Returns the names of all baselines: those on Spark's own state, and those on other engines."""
    return [*natives(), *engines()]


def every() -> list[str]:
    """Returns the names of all that can be compared: mechanisms and baselines."""
    return [*names(), *baselines()]


def options(name: str) -> dict[str, Any]:
    """Returns a mechanism's options with their defaults; raises UsageError for an unknown mechanism."""
    kind: Any = _mechanisms().get(name) or _baselines().get(name)
    if kind is None:
        raise UsageError(f"The mechanism {name!r} is unknown: use one of {', '.join(every())}.")
    return {f.name: f.default for f in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else {}


def known(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns those of the given options that a mechanism has: several are often given theirs together."""
    own = options(name)
    return {option: value for option, value in given.items() if option in own}


def make(name: str, **given: Any) -> Mechanism:
    """Returns a mechanism with options; raises UsageError for an unknown name or option, or a value it refuses."""
    if name in _baselines():
        whose = "Spark's own restart" if name in NATIVES else "another engine's way"
        raise UsageError(f"{name} is {whose} and no mechanism of this runtime: use one of {', '.join(names())}.")
    _check_options(name, given)
    return _mechanisms()[name](**given)


def _baselines() -> dict[str, Any]:
    return {**NATIVES, **_engines()}


def baseline(name: str, **given: Any) -> Any:
    """Returns a baseline with options; raises UsageError for an unknown name or option, or a value it refuses."""
    _check_options(name, given)
    return _baselines()[name](**given)


def mode_of(name: str) -> str | None:
    """Returns the mode of a baseline, real-time for other engines; None for a mechanism, which runs in every mode."""
    known = _baselines().get(name)
    return None if known is None else str(known.mode)


def queries_of(name: str) -> tuple[str, ...]:
    """Returns the NEXMark queries that another engine runs here; none for a baseline on Spark's own state."""
    return tuple(getattr(_engines().get(name), "queries", ()))


def check(name: str, **given: Any) -> None:
    """Raises UsageError when there is no such mechanism or baseline, or it does not take the options."""
    baseline(name, **given) if name in _baselines() else make(name, **given)


def _check_options(name: str, given: Mapping[str, Any]) -> None:
    known_here = options(name)
    for option, value in given.items():
        if option not in known_here:
            takes = f"it takes {', '.join(known_here)}" if known_here else "it takes none"
            raise UsageError(f"The mechanism {name!r} has no option {option!r}: {takes}.")
        if type(value) is not type(known_here[option]):
            raise UsageError(
                f"The option {option!r} must be of type {type(known_here[option]).__name__}, not {value!r}."
            )
