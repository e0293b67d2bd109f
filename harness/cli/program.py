"""The program behind `./inv` and `rescale-bench`: invoke, with each task's own help, and one sentence for bad input.

The exit code is then 2. What users read names `./inv`; a program of another name puts its own there.
"""

import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import invoke
from invoke.collection import Collection
from invoke.exceptions import Exit, ParseError
from invoke.program import Program

_OWN = "./inv"
_HELP = {"--help", "-h"}
_RENAMED = {"--mends": "--repairs"}  # options that had another name in the version before


@contextmanager
def _one_sentence(binary: str) -> Iterator[None]:
    from impls.errors import UsageError  # which is found as soon as invoke has found tasks.py

    try:
        yield
    except (ParseError, UsageError) as error:
        said = _explain(error) if isinstance(error, ParseError) else str(error)
        raise Exit(said.replace(f"{_OWN} ", f"{binary} "), code=2) from None


def _explain(error: ParseError) -> str:
    """Returns what invoke's parser says in the words of a user."""
    task = getattr(error.context, "name", None)
    if match := re.match(r"No idea what '(.*)' is!", str(error)):
        if task and match[1].startswith("-"):
            return f"./inv {task} has no option {match[1]}: ./inv {task} --help shows them all."
        return (
            f"There is no {'option' if match[1].startswith('-') else 'task'} {match[1]}: ./inv --list shows the tasks."
        )
    if match := re.match(r"Flag <Argument: (\w+)", str(error)):
        return f"--{match[1].replace('_', '-')} needs a value: ./inv {task} --help says which."
    if match := re.match(r"'.*' did not receive required positional arguments: (.*)", str(error)):
        missing = re.sub(r"'(\w+)'", lambda name: "--" + name[1].replace("_", "-"), match[1])
        return f"./inv {task} needs {missing}: ./inv {task} --help says what that is."
    return str(error)


class _Inv(Program):
    """Invoke as this project's users see it."""

    def parse_tasks(self) -> None:
        """Reads the tasks and their options; help that is asked for anywhere behind a task is that task's."""
        with _one_sentence(self.binary):
            words = self.core.unparsed
            if len(words) > 1 and _HELP & set(words[1:]):
                self.args.help.value, self.core.unparsed = words[0], []
            self.core.unparsed = [self._renamed(word) for word in self.core.unparsed]
            super().parse_tasks()

    def _renamed(self, word: str) -> str:
        flag, equals, value = word.partition("=")
        if now := _RENAMED.get(flag):
            sys.stderr.write(f"{flag} is now {now}; the old name goes with the next version.\n")
        return f"{now or flag}{equals}{value}"

    def parse_cleanup(self) -> None:
        """Prints help or the list of tasks if one was asked for."""
        with _one_sentence(self.binary):
            super().parse_cleanup()

    def execute(self) -> None:
        """Runs the tasks."""
        with _one_sentence(self.binary):
            super().execute()

    def print_task_help(self, name: str) -> None:
        """Prints a task's help, as wide as the terminal."""
        task = self.collection[name]
        if help_for := getattr(task, "help_for", None):
            text: str = help_for(name, shutil.get_terminal_size((100, 24)).columns)
            sys.stdout.write(text.replace(f"{_OWN} ", f"{self.binary} "))
        else:
            super().print_task_help(name)


def program(binary: str, namespace: Collection | None = None, version: str = invoke.__version__) -> Program:
    """Returns the program of a name that runs the tasks of a collection, or of the tasks.py that it finds."""
    name = "Invoke" if namespace is None else binary
    return _Inv(
        name=name, binary=binary, binary_names=[binary.removeprefix("./")], version=version, namespace=namespace
    )


if __name__ == "__main__":
    program(_OWN).run()
