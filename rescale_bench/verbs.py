"""The tasks of `./inv` that need no repository, found in `harness.cli`."""

import pkgutil
from importlib import import_module
from types import ModuleType
from typing import Any

from invoke.collection import Collection
from invoke.tasks import Task

import harness.cli
import rescale_bench
from harness.cli.program import program

_GROUPS = {"cluster", "pipeline"}
_OF_THE_REPOSITORY = {"development", "docker", "graph", "program", "verb"}
_NEED_IT = {"doctor", "figures", "regress", "reproduce", "simulate", "verify_claims"}  # doctor: see __main__


def collection() -> Collection:
    """Returns the tasks of a package without its repository: no tests, no images, no other commits."""
    tasks = Collection()
    for name in sorted({module.name for module in pkgutil.iter_modules(harness.cli.__path__)} - _OF_THE_REPOSITORY):
        module = import_module(f"harness.cli.{name}")
        if name in _GROUPS:
            tasks.add_collection(Collection.from_module(module, name=name))
        else:
            for task in _tasks(module):
                tasks.add_task(task)
    return tasks


def listing() -> str:
    """Returns a line for each task: its name and what it does."""
    tasks = collection()
    about = {name: (tasks[name].__doc__ or "").strip().split("\n")[0] for name in sorted(tasks.task_names)}
    left = max(map(len, about)) + 4
    return "\n".join(f"  {name}".ljust(left) + text for name, text in about.items())


def run(name: str, words: list[str]) -> None:
    """Runs the task that words name, under the program's name, and ends the program."""
    program(name, collection(), rescale_bench.__version__).run([name, *words])


def _tasks(module: ModuleType) -> list[Task[Any]]:
    """Returns the tasks that a module defines, not those it imports."""
    own = [one for one in vars(module).values() if isinstance(one, Task) and one.body.__module__ == module.__name__]
    return [task for task in own if task.name not in _NEED_IT]
