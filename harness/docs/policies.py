"""What the site says of policies by reading their modules: what each does, and its options with their defaults."""

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from impls import autoscale, placement

__all__ = ["autoscaling_table", "placement_table"]


def autoscaling_table() -> str:
    """Returns the autoscaling policies as a table in Markdown."""
    return _table(autoscale.policies(), autoscale.options)


def placement_table() -> str:
    """Returns the placement policies as a table in Markdown."""
    return _table(placement.policies(), placement.options)


def _table(policies: Mapping[str, Any], options: Callable[[str], Mapping[str, float]]) -> str:
    lines = ["| policy | what it does | options and their defaults |", "|---|---|---|"]
    for name in sorted(policies):
        shown: Iterable[str] = (f"`{option}` {value:g}" for option, value in options(name).items())
        lines.append(f"| `{name}` | {_purpose(policies[name])} | {', '.join(shown) or '-'} |")
    return "\n".join(lines) + "\n"


def _purpose(policy: Any) -> str:
    """Returns the first paragraph of the docstring of a policy's module."""
    about = inspect.getdoc(sys.modules[policy.__module__]) or ""
    return " ".join(about.split("\n\n")[0].split())
