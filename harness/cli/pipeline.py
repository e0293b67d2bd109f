"""Tasks that change a running query's pipeline: show, offer, replace, insert and remove."""

from typing import Any

from invoke.context import Context

from harness.cli.verb import run, verb
from harness.options import parse_list
from harness.options.declared import BYTES, COUNT, FLAG, FOLDER, Option

_CHECKPOINT = Option("checkpoint", "checkpoint folder of the running query", FOLDER, required=True)
_CODE = Option("code", "a Python file and a name in it, as in rules.py:limit", required=True)
_WAYS = (
    Option("migrate", "a function of the same file: a value of state to one of the new operator's", shown="none"),
    Option("back", "a function of the same file: the way back", shown="none"),
)
_WAIT = Option(
    "wait", "seconds to wait until the change is done or refused; 0 returns once it is durable", COUNT, default=60,
    subject="The seconds to wait", least=0,
)  # fmt: skip


@verb(_CHECKPOINT)
def show(c: Context, checkpoint: str) -> None:
    """Show the versions of a running query's pipeline, and how many bins run under each."""
    run("harness.run.change:show", checkpoint)


@verb(
    Option("checkpoint", "checkpoint folders of queries, separated by commas", required=True),
    _CODE,
    *_WAYS,
)  # fmt: skip
def offer(c: Context, checkpoint: str, **given: Any) -> None:
    """Put code into checkpoints and print its name there, by which commands of a control topic may ask for it.

    Nothing else that a control topic names is ever loaded. The queries may run or not.
    """
    run("harness.run.change:offer", checkpoint=parse_list(checkpoint), **given)


@verb(
    _CHECKPOINT,
    _CODE,
    *_WAYS,
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
