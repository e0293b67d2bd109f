"""The task that puts a command into a control topic and prints the answers."""

import sys
import uuid
from datetime import datetime
from datetime import time as time_of_day
from typing import Any

from invoke.context import Context

from harness.cli.verb import verb
from harness.options import ending, parse_list
from harness.options.declared import COUNT, REAL, Option
from impls.errors import UsageError

__all__ = ["OPTIONS", "command_of", "control"]

_REQUEST, _WHEN, _TOPIC = "What to ask for", "From when on", "Topic"
_ARGUMENTS = {"rescale": ("workers", "policy", "hosts"), "rebalance": (), "stop": (), "status": ()}
OPTIONS = (
    Option("do", "what to ask for", group=_REQUEST, required=True, choices=tuple(_ARGUMENTS), subject="The request"),
    Option("workers", "of rescale: number of workers to go to", COUNT, _REQUEST, shown="needed for rescale",
           subject="The number of workers"),
    Option("policy", "of rescale: placement policy", group=_REQUEST, shown="the query's"),
    Option("hosts", "of rescale: hosts that keep workers, separated by commas", group=_REQUEST, shown="all"),
    Option("query", "names of the queries that it is for, separated by commas", group=_REQUEST, shown="all"),
    Option("from", "the input's time from which on it holds: HH:MM:SS today, or ISO 8601; local time without a zone",
           group=_WHEN, shown="the next epoch"),
    Option("offsets", "the input's offsets from which on it holds: TOPIC:PARTITION=OFFSET, separated by commas",
           group=_WHEN, shown="the next epoch"),
    Option("topic", "the control topic", group=_TOPIC, default="control"),
    Option("bootstrap", "addresses of its broker", group=_TOPIC, default="localhost:9092"),
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
def _send_and_print(given: dict[str, Any]) -> int:
    """Sends the command that the options give, prints the answers, a line of JSON each, and returns the exit code.

    It is 2 when the options make no command, the broker does not take it, or a query has refused it, and 1 without an
    answer.
    """
    from impls.controltopic.client import ControlClient

    command, id_ = command_of(given, datetime.now().astimezone()), given["id"] or uuid.uuid4().hex
    last: dict[str, dict[str, Any]] = {}
    with ControlClient(given["bootstrap"], given["topic"]) as client:
        client.send({id_: command})
        for answer in client.answers(given["wait"]):
            if answer["id"] == id_:
                _print(answer)
                last[answer["query"]] = answer
            if _complete(last, command.get("queries")):
                break
    missing = sorted(set(command.get("queries", ())) - set(last))
    refused = [answer for answer in last.values() if answer["outcome"] == "refused"]
    if refused:
        raise UsageError(f"The query {refused[0]['query']} has refused it: {refused[0]['error']}")
    if given["wait"] and (missing or not last):
        who = f"The query {missing[0]} has" if missing else "No query has"
        sys.stderr.write(
            f"{who} not answered in {given['wait']:g} s: the command {id_} is in the topic and holds when it is read.\n"
        )
        return 1
    if not last:
        _print({"id": id_, "outcome": "sent"})
    return 0


def command_of(given: dict[str, Any], now: datetime) -> dict[str, Any]:
    """Returns the command that options give, without its id; raises UsageError where they give none.

    Args:
        given: values of the options by name.
        now: the time here.
    """
    allowed = _ARGUMENTS[given["do"]]
    for name in ("workers", "policy", "hosts"):
        if given[name] is not None and name not in allowed:
            raise UsageError(f"The option --{name} is one of rescale, not of {given['do']}.")
    if "workers" in allowed and given["workers"] is None:
        raise UsageError("A rescale needs --workers, the number of workers to go to.")
    if given["from"] is not None and given["offsets"] is not None:
        raise UsageError("A command holds from a time or from offsets: give --from or --offsets.")
    command = {"do": given["do"], **{name: given[name] for name in allowed if given[name] is not None}}
    if "hosts" in command:
        command["hosts"] = list(parse_list(command["hosts"]))
    if given["sender"]:
        command["sender"] = given["sender"]
    if given["query"] is not None:
        command["queries"] = list(parse_list(given["query"]))
    if given["from"] is not None:
        command["from"] = {"time": _ms_of(given["from"], now)}
    if given["offsets"] is not None:
        command["from"] = {"offsets": _offsets_of(given["offsets"])}
    return command


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
