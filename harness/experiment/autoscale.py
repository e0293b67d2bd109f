"""The migrations that a policy decides: `autoscale:policy=ds2,min=1,max=8,...` as bounds, times and policy."""

from typing import Any

from harness.options import parse_list
from impls.autoscale.loop import AutoscaleSettings
from impls.errors import UsageError

__all__ = ["parse_autoscale"]

_AUTOSCALE = "autoscale"
_NAMES = {"min": "least", "max": "most"}  # as `StreamHandle.autoscale` calls them
_KINDS: dict[str, type[Any]] = {"least": int, "most": int, "interval_s": float, "cooldown_s": float, "warmup": int}


def parse_autoscale(migration: str) -> AutoscaleSettings | None:
    """Returns what a migration asks for, None for one that is not decided by a policy.

    What is no bound and no time is an option of the policy.

    Raises:
        UsageError: no policy or no `max` is named, or one of the values cannot be used.
    """
    kind, _, text = migration.partition(":")
    if kind != _AUTOSCALE:
        return None
    pairs = [part.partition("=")[::2] for part in parse_list(text)]
    given = {_NAMES.get(name, name): value for name, value in pairs}
    if "policy" not in given or "most" not in given:
        raise UsageError("A policy and its bounds are given as autoscale:policy=ds2,min=1,max=8, with its options.")
    policy = given.pop("policy")
    own = {name: _number(name, given.pop(name)) for name in _KINDS.keys() & given.keys()}
    options = ",".join(f"{name}={value}" for name, value in given.items())
    return AutoscaleSettings(f"{policy}:{options}" if options else policy, **own)


def _number(name: str, value: str) -> Any:
    try:
        return _KINDS[name](value)
    except ValueError:
        shown = next((short for short, full in _NAMES.items() if full == name), name)
        raise UsageError(f"{shown} of autoscale is a number, not {value!r}.") from None
