"""The command reference: every task of `./inv` with its options, from what its help is made of."""

import inspect
import re
from typing import Any

from invoke.collection import Collection

from harness.cli.verb import Verb
from harness.options.declared import FLAG, Option, defaults_of


def tasks_of(namespace: Collection) -> dict[str, Any]:
    """Returns the tasks by the name under which users call them, those of a group behind a dot."""
    own = {task.name.replace("_", "-"): task for task in namespace.tasks.values()}
    for group, collection in namespace.collections.items():
        own |= {f"{group}.{task.name.replace('_', '-')}": task for task in collection.tasks.values()}
    return dict(sorted(own.items()))


def command_reference(namespace: Collection) -> str:
    """Returns a section in Markdown for each task: what it does, how it is called, its options in groups."""
    return "\n".join(_section(name, task) for name, task in tasks_of(namespace).items())


def _section(name: str, task: Any) -> str:
    about = inspect.getdoc(task.body) or ""
    options = task.options if isinstance(task, Verb) else ()
    presets = task.presets if isinstance(task, Verb) else {}
    needed = "".join(f" {option.name.upper()}" for option in options if option.required)
    lines = [f"## ./inv {name}", "", "\n\n".join(" ".join(part.split()) for part in about.split("\n\n")), ""]
    lines += [f"`./inv {name}{needed}{' [options]' if options else ''}`", ""]
    for group in dict.fromkeys(option.group for option in options):
        lines += [f"**{group}**", ""] if group else []
        for option in options:
            if option.group == group:
                lines += _definition(option, defaults_of(option, presets))
    return "\n".join(lines)


def _definition(option: Option, defaults: str) -> list[str]:
    """Returns an option as an entry of a definition list."""
    spec = f"{option.flag} {option.metavar}".rstrip()
    said = re.sub(r"([*_<>|])", r"\\\1", f"{option.help}{defaults if option.kind != FLAG else ''}")
    return [f"`{spec}`", f": {said}", ""]
