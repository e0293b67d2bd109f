"""The task that puts a command into a control topic and prints the answers."""

import sys
import uuid
from datetime import datetime
from datetime import time as time_of_day
from pathlib import Path
from typing import Any

from invoke.context import Context

from harness.cli.verb import verb
from harness.options import ending, parse_list
from harness.options.declared import BYTES, COUNT, FLAG, REAL, Option
from impls.errors import UsageError

_REQUEST, _CHANGE, _WHEN, _TOPIC = "What to ask for", "Changes of the pipeline", "From when on", "Topic"
_ARGUMENTS = {
    "rescale": ("workers", "policy", "hosts"), "rebalance": (), "stop": (), "status": (),
    "replace": ("offered", "lazy", "budget", "repairs"), "insert": ("offered", "before"),
    "remove": ("name",),
}  # fmt: skip
_NEEDED = {
    "rescale": ("workers", "the number of workers to go to"), "remove": ("name", "the name of the step"),
    "replace": ("offered", "a name that pipeline.offer has said"),
    "insert": ("offered", "a name that pipeline.offer has said"),
}  # fmt: skip
_CHANGES = ("replace", "insert", "remove")
OPTIONS = (
    Option("do", f"what to ask for: {', '.join(_ARGUMENTS)}", group=_REQUEST, required=True),
    Option("workers", "of rescale: number of workers to go to", COUNT, _REQUEST, shown="needed for rescale",
           subject="The number of workers"),
    Option("policy", "of rescale: placement policy", group=_REQUEST, shown="the query's"),
    Option("hosts", "of rescale: hosts that keep workers, separated by commas", group=_REQUEST, shown="all"),
    Option("offered", "of replace and insert: name of code in the query's checkpoint, as pipeline.offer says it",
           group=_CHANGE, shown="needed for them"),
    Option("lazy", "of replace: records come under the new version at once, state when its bin is touched", FLAG,
           _CHANGE),
    Option("budget", "of replace: most bytes of state that a worker turns in an epoch without need", BYTES, _CHANGE,
           shown="256K", subject="The budget", least=1),
    Option("repairs", "of replace: a refused version at which bins had to stay; their state is taken for the new one's",
           COUNT, _CHANGE, shown="none", subject="The version", least=1),
    Option("before", "of insert: name of the step to put it in front of", group=_CHANGE, shown="behind all"),
    Option("name", "of remove: name of the step", group=_CHANGE, shown="needed for remove"),
    Option("query", "names of the queries that it is for, separated by commas", group=_REQUEST, shown="all"),
    Option("from", "the input's time from which on it holds: HH:MM:SS today, or ISO 8601; local time without a zone",
           group=_WHEN, shown="the next epoch"),
    Option("offsets", "the input's offsets from which on it holds: TOPIC:PARTITION=OFFSET, separated by commas",
           group=_WHEN, shown="the next epoch"),
    Option("topic", "the control topic", group=_TOPIC, default="control"),
    Option("bootstrap", "addresses of its broker", group=_TOPIC, default="localhost:9092"),
    Option("settings", "a file of librdkafka settings for it, NAME=VALUE on each line, such as those of SASL and TLS",
           group=_TOPIC, shown="none"),
    Option("id", "the command's id: what was sent with it before is not done again", group=_TOPIC, shown="a new one"),
    Option("sender", "who sends it, for those who read the log", group=_TOPIC, default=""),
    Option("wait", "for answers; with --query it ends when all have answered", REAL, _TOPIC, 10.0, "seconds",
           least=0, most=86_400, subject="The time to wait"),
)  # fmt: skip


@verb(*OPTIONS)
def control(c: Context, **given: Any) -> None:
    """Send a command to queries by their control topic and print what they answer.

    A command is durable when it is in the topic, and each query carries it out once. It holds from the first epoch that
    begins at or behind the time or offsets in every partition of the input. A query answers that it waits for them, and
    again when it has carried the command out or refused it.
    """
    sys.exit(_send_and_print(given))


@ending()
def _send_and_print(options: dict[str, Any]) -> int:
    """Sends the command that the options give, prints the answers, a line of JSON each, and returns the exit code.

    It is 2 when the options make no command, the broker does not take it, or a query has refused it, and 1 without an
    answer.
    """
    from impls.controltopic.client import ControlClient

    command, id_ = command_of(options, datetime.now().astimezone()), options["id"] or uuid.uuid4().hex
    last: dict[str, dict[str, Any]] = {}
    with ControlClient(options["bootstrap"], options["topic"], _settings_of(options["settings"])) as client:
        client.send({id_: command})
        for answer in client.answers(options["wait"]):
            if answer["id"] == id_:
                _print(answer)
                last[answer["query"]] = answer
            if _complete(last, command.get("queries")):
                break
    missing = sorted(set(command.get("queries", ())) - set(last))
    refused = [answer for answer in last.values() if answer["outcome"] == "refused"]
    if refused:
        raise UsageError(f"The query {refused[0]['query']} has refused it: {refused[0]['error']}")
    if options["wait"] and (missing or not last):
        who = f"The query {missing[0]} has" if missing else "No query has"
        sys.stderr.write(
            f"{who} not answered in {options['wait']:g} s: the command {id_} is in the topic, and holds when it is "
            "read.\n"
        )
        return 1
    if not last:
        _print({"id": id_, "outcome": "sent"})
    return 0


def command_of(options: dict[str, Any], now: datetime) -> dict[str, Any]:
    """Returns the command that options give, without its id; raises UsageError where they give none.

    Args:
        options: values of the options by name.
        now: the time here.
    """
    _check_arguments(options)
    if options["from"] is not None and options["offsets"] is not None:
        raise UsageError("A command holds from a time or from offsets: give --from or --offsets.")
    command = _request_of(options)
    if options["sender"]:
        command["sender"] = options["sender"]
    if options["query"] is not None:
        command["queries"] = list(parse_list(options["query"]))
    if options["from"] is not None:
        command["from"] = {"time": _ms_of(options["from"], now)}
    if options["offsets"] is not None:
        command["from"] = {"offsets": _offsets_of(options["offsets"])}
    return command


def _check_arguments(options: dict[str, Any]) -> None:
    """Raises UsageError for an option of another request, and for one that is needed."""
    do = options["do"]
    if do not in _ARGUMENTS:
        raise UsageError(f"The request {do!r} is unknown: use one of {', '.join(_ARGUMENTS)}.")
    for name in dict.fromkeys(name for names in _ARGUMENTS.values() for name in names):
        if options[name] not in {None, False} and name not in _ARGUMENTS[do]:
            takers = " and ".join(taker for taker, names in _ARGUMENTS.items() if name in names)
            raise UsageError(f"The option --{name} is one of {takers}, not of {do}.")
    needed, what = _NEEDED.get(do, ("do", ""))
    if options[needed] is None:
        raise UsageError(f"{'An' if do == 'insert' else 'A'} {do} needs --{needed}, {what}.")


def _request_of(given: dict[str, Any]) -> dict[str, Any]:
    """Returns what a query is to do, as its control channel takes it."""
    do = given["do"]
    arguments = {name: given[name] for name in _ARGUMENTS[do]}
    if do in _CHANGES:
        from harness.run.change import request_of

        return request_of(do, **arguments)
    request = {"do": do, **{name: value for name, value in arguments.items() if value is not None}}
    if "hosts" in request:
        request["hosts"] = list(parse_list(request["hosts"]))
    return request


def _settings_of(file: str | None) -> dict[str, str]:
    """Reads a file of settings; raises UsageError for one that cannot be read, or has a line without a setting."""
    if file is None:
        return {}
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        raise UsageError(f"The settings {file} cannot be read: {error}.") from error
    found = {}
    for number, line in enumerate(map(str.strip, lines), 1):
        name, there, value = line.partition("=")
        if line and not line.startswith("#"):
            if not (there and name.strip()):
                raise UsageError(f"Line {number} of {file} is no setting: give it as NAME=VALUE.")
            found[name.strip()] = value.strip()
    return found


def _ms_of(text: str, now: datetime) -> int:
    """Returns a time of day, today, or a time in ISO 8601 as ms since the Unix epoch."""
    try:
        clock = time_of_day.fromisoformat(text) if text[2:3] == ":" else None
        when = datetime.fromisoformat(text) if clock is None else datetime.combine(now.date(), clock)
    except ValueError:
        raise UsageError(f"--from takes a time of today such as 12:00:00, or ISO 8601, not {text!r}.") from None
    return round(when.timestamp() * 1000)


def _offsets_of(text: str) -> dict[str, dict[str, int]]:
    offsets: dict[str, dict[str, int]] = {}
    for word in parse_list(text):
        place, _, offset = word.partition("=")
        topic, _, part = place.rpartition(":")
        if not (topic and part.isdecimal() and offset.isdecimal()):
            raise UsageError(f"--offsets takes TOPIC:PARTITION=OFFSET, separated by commas, not {word!r}.")
        offsets.setdefault(topic, {})[part] = int(offset)
    if not offsets:
        raise UsageError("--offsets takes TOPIC:PARTITION=OFFSET, separated by commas.")
    return offsets


def _complete(last: dict[str, dict[str, Any]], queries: list[str] | None) -> bool:
    """Returns whether all the queries that a command names have done with it."""
    done = {query for query, answer in last.items() if answer["outcome"] != "waiting"}
    return queries is not None and set(queries) <= done


def _print(answer: dict[str, Any]) -> None:
    from impls.protocol.jsontext import to_text

    sys.stdout.write(to_text(answer).decode() + "\n")
    sys.stdout.flush()
