"""Tasks that change a running query's pipeline: pipeline.show, pipeline.replace, pipeline.insert, pipeline.remove."""

from typing import Any

from invoke.context import Context

from harness.cli.verb import run, verb
from harness.options.declared import BYTES, COUNT, FLAG, FOLDER, Option

_CHECKPOINT = Option("checkpoint", "checkpoint folder of the running query", FOLDER, required=True)
_CODE = Option("code", "a Python file and a name in it, as in rules.py:limit", required=True)
_WAIT = Option(
    "wait", "seconds to wait until the change is done or refused; 0 returns once it is durable", COUNT, default=60,
    subject="The seconds to wait", least=0,
)  # fmt: skip


@verb(_CHECKPOINT)
def show(c: Context, checkpoint: str) -> None:
    """Show the versions of a running query's pipeline, and how many bins run under each."""
    run("harness.run.change:show", checkpoint)


@verb(
    _CHECKPOINT,
    _CODE,
    Option("migrate", "a function of the same file: a value of state to one of the new operator's", shown="none"),
    Option("back", "a function of the same file: the way back", shown="none"),
    Option("lazy", "records come under the new version at once, state when its bin is touched", FLAG),
    Option("budget", "most bytes of state that a worker turns in an epoch without need", BYTES, default=256 << 10,
           shown="256K", subject="The budget", least=1),
    Option("repairs", "a refused version at which bins had to stay; their state is taken for the new one's", COUNT,
           default=0, shown="none", least=0),
    _WAIT,
)  # fmt: skip
def replace(c: Context, **given: Any) -> None:
    """Replace the operator of a running query, or the step of the same name; exit code 1 if it is refused."""
    run("harness.run.change:replace", **given)


@verb(_CHECKPOINT, _CODE, Option("before", "name of the step to put it in front of", shown="behind all"), _WAIT)
def insert(c: Context, **given: Any) -> None:
    """Put a step into the pipeline of a running query; exit code 1 if it is refused."""
    run("harness.run.change:insert", **given)


@verb(_CHECKPOINT, Option("name", "name of the step", required=True), _WAIT)
def remove(c: Context, **given: Any) -> None:
    """Take a step out of the pipeline of a running query; exit code 1 if that is refused."""
    run("harness.run.change:remove", **given)
