"""A task whose options are data: what invoke parses, what help prints and what is checked come from them.

Also how a task calls a function or runs a module of this project.
"""

import inspect
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from invoke.context import Context
from invoke.parser.argument import Argument
from invoke.tasks import Task

from harness.files import ROOT
from harness.options.declared import FLAG, Option, help_text


class Verb(Task[Any]):
    """A task with the options given; its body gets their values by name, None for what is not given and has no default.

    An option that is the field of an experiment is None too: which default it has depends on the others.
    """

    def __init__(
        self, body: Callable[..., None], options: tuple[Option, ...], presets: Mapping[str, Mapping[str, Any]]
    ):
        super().__init__(body, positional=(), auto_shortflags=False)
        self.options, self.presets = options, presets

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:
        """Returns invoke's arguments; values stay text, as what refuses them is `Option.read`."""
        return [
            Argument(
                names=(option.flag.removeprefix("--"),), help=option.help,
                attr_name=option.name if "_" in option.name else None,  # an alias of itself is looked up for ever
                kind=bool if option.kind == FLAG else str, default=False if option.kind == FLAG else None,
                positional=option.required,
            )
            for option in self.options
        ]  # fmt: skip

    def __call__(self, *arguments: Any, **texts: Any) -> Any:
        """Reads the options' texts and runs the body; raises UsageError with one sentence for a bad one."""
        values = {option.name: _value(option, texts.get(option.name)) for option in self.options}
        return super().__call__(*arguments, **values)

    def help_for(self, name: str, columns: int) -> str:
        """Returns the task's help under the name that users give it."""
        return help_text(name, inspect.getdoc(self.body) or "", self.options, columns, self.presets)


def _value(option: Option, text: Any) -> Any:
    if text is not None:
        return option.read(text)
    return None if option.field else option.default


def verb(
    *options: Option, presets: Mapping[str, Mapping[str, Any]] | None = None
) -> Callable[[Callable[..., None]], Verb]:
    """Returns a decorator that makes a function a task with these options; presets are shown beside the defaults."""
    return lambda body: Verb(body, options, presets or {})


def run(where: str, *arguments: Any, **named: Any) -> None:
    """Calls `module:function`, loaded now so that tasks are listed fast, and ends with the exit code it returns."""
    module, _, name = where.partition(":")
    sys.exit(getattr(import_module(module), name)(*arguments, **named))


def run_module(c: Context, command: str) -> None:
    """Runs `python -m COMMAND` in the project's folder."""
    with c.cd(ROOT):
        c.run(f"{sys.executable} -m {command}", pty=sys.stdout.isatty())
