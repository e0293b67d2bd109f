"""What the site says of mechanisms and policies: what each does, and its options with their defaults."""

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.cli.mechanisms import purpose_of
from impls import autoscale, catalog, placement

_PACKAGE = "impls.mechanisms."


def _kind_of(name: str) -> type:
    return type(catalog.baseline(name) if name in catalog.baselines() else catalog.make(name))


def _folder_of(name: str) -> str:
    return _kind_of(name).__module__.removeprefix(_PACKAGE).split(".")[0]


def folders() -> dict[str, list[str]]:
    """Returns the names of mechanisms and baselines by the folder of `impls/mechanisms` that they are in."""
    found: dict[str, list[str]] = {}
    for name in catalog.every():
        found.setdefault(_folder_of(name), []).append(name)
    return found


def _about(kind: type) -> dict[str, str]:
    """Returns what the section "Attributes" of a class and of those that it extends says of each name."""
    found: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        text = inspect.cleandoc(one.__doc__ or "").partition("Attributes:\n")[2].split("\n\n")[0]
        for name, words in re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", text, re.M):
            found[name] = " ".join(words.split())
    return found


def _shown(value: Any) -> str:
    """Returns a default as a reader takes it in: large powers of two in MiB, an empty text as none."""
    if isinstance(value, int) and value >= 1 << 20 and value % (1 << 20) == 0:
        return f"{value >> 20} MiB"
    return "none" if value == "" else f"{value}"


def mechanism_table(root: Path) -> str:
    """Returns all mechanisms and baselines as a table in Markdown, each linked with its page, as from `docs/`."""
    lines = ["| mechanism | what it does | options and their defaults |", "|---|---|---|"]
    for folder, names in sorted(folders().items(), key=lambda item: (item[1][0] in catalog.baselines(), item[0])):
        page = root / "impls" / "mechanisms" / folder / "README.md"
        link = f"../{page.relative_to(root).as_posix()}"
        for name in names:
            options = [f"`{option}` {_shown(value)}" for option, value in catalog.options(name).items()]
            lines.append(f"| [{name}]({link}) | {purpose_of(_kind_of(name))} | {', '.join(options) or '-'} |")
    return "\n".join(lines) + "\n"


def option_table(folder: str) -> str:
    """Returns the options of a folder's mechanisms as a table in Markdown; empty where there are none."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for name in folders()[folder]:
        about = _about(_kind_of(name))
        for option, value in catalog.options(name).items():
            rows.setdefault((option, _shown(value), about.get(option, "")), []).append(name)
    if not rows:
        return ""
    lines = ["| option | default | of | what it is |", "|---|---|---|---|"]
    lines += [
        f"| `{o}` | {v} | {', '.join(f'`{n}`' for n in names)} | {text} |" for (o, v, text), names in rows.items()
    ]
    return "\n".join(lines) + "\n"


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
