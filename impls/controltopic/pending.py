"""What a query knows of its control topic, and what follows from it. Pure: no Kafka, clock or files.

Events in: a record was read, an epoch is about to be planned, a command was carried out, an answer was taken by the
broker. Out come notes and answers. A note is a line of the control journal; the state changes by `apply` alone, which
takes notes that have just been made durable and, after a crash, those of the journal.

What it means that an epoch reaches a command, and in which order it carries out what it reaches, is in
`impls.controltopic.commands`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from impls.controltopic.commands import (
    BadCommandError,
    ControlCommand,
    Offsets,
    Waiting,
    in_text,
    offsets_of,
    read_command,
)
from impls.errors import StateError

_QUESTIONS = {"status"}  # they change nothing, and may be asked again with an id that was forgotten
_PREFIX = "control/"


@dataclass(frozen=True, slots=True)
class AppendEntry:
    """An instruction: append the entry to the control journal, then `apply` it."""

    entry: dict[str, Any]


@dataclass(frozen=True, slots=True)
class SendAnswer:
    """An instruction: send `value` to a topic; with `id`, until the broker has taken it, which `sent` says.

    The key is that of the command and the query, so that a topic with compaction keeps the last answer.
    """

    topic: str
    key: str
    value: dict[str, Any]
    id: str = ""


Instruction = AppendEntry | SendAnswer


class PendingCommands:
    """read() records; before an epoch due(), bounded(), refused() and reached(), then carried() for each in turn.

    Attributes:
        query: the query's name.
        waiting: commands that are not carried out, by id, in the order in which they were read.
        done: what became of the others, by id; see `carried`.
        topic_id: the broker's id of the control topic, "" before it is known.
        positions: by partition of the control topic, the next offset to read.
        garbage: records without an id that were read since the start.
    """

    def __init__(self, query: str, answers: Sequence[str], generation: int):
        """Knows nothing yet.

        Args:
            query: the query's name.
            answers: topics that a command may name for its answers; the first is that of commands that name none.
            generation: the driver's; what it carries out before an epoch comes behind what others did before it.
        """
        self.query, self._answers, self._generation = query, answers, generation
        self.waiting: dict[str, Waiting] = {}
        self.done: dict[str, dict[str, Any]] = {}
        self.topic_id = ""
        self.positions: dict[int, int] = {}
        self.garbage = 0
        self._unsent: dict[str, None] = {}
        self._numbers = self._refused = 0

    def apply(self, entry: Mapping[str, Any]) -> None:
        """Takes in an entry of the journal; raises StateError for one that is none."""
        match entry:
            case {"read": command, "since": since}:
                found = ControlCommand.from_json(command)
                self.waiting[found.id] = Waiting(found, since, found.offsets)
            case {"bound": offsets, "id": id_}:
                self.waiting[id_] = replace(self.waiting[id_], bound=offsets_of(offsets))
            case {"done": done}:
                self.waiting.pop(done["id"], None)
                self.done[done["id"]], self._unsent[done["id"]] = done, None
                self._numbers = max(self._numbers, done.get("number", 0))
                self._refused += done["outcome"] == "refused"
            case {"sent": id_}:
                self._unsent.pop(id_, None)
            case {"numbers": number}:
                self._numbers = number
            case {"topic_id": id_}:
                if self.topic_id:  # the topic was made anew: its offsets name other records
                    self.positions = {}
                self.topic_id = id_
            case {"positions": positions}:
                self.positions = {int(part): at for part, at in positions.items()}
            case _:
                raise StateError(f"The control journal has an entry {sorted(entry)}, which is unknown.")

    def notes(self) -> Iterable[dict[str, Any]]:
        """Yields entries that make pending commands like this one; questions that are answered are forgotten."""
        yield {"numbers": self._numbers}
        if self.topic_id:
            yield {"topic_id": self.topic_id}
        yield {"positions": {str(part): at for part, at in self.positions.items()}}
        for one in self.waiting.values():
            yield {"read": one.command.to_json(), "since": one.since}
            if one.bound is not None:
                yield _bound_note(one.command.id, one.bound)
        for id_, done in self.done.items():
            if id_ in self._unsent or done["do"] not in _QUESTIONS:
                yield {"done": done}
            if id_ not in self._unsent and done["do"] not in _QUESTIONS:
                yield {"sent": id_}

    def read(self, value: bytes | None, at: tuple[int, int], next_epoch: int) -> list[Instruction]:
        """Takes in a record of the control topic, also one that was read before.

        Args:
            value: the record's; None for a tombstone, which is passed over.
            at: its partition and offset.
            next_epoch: the next epoch that will be planned.
        """
        try:
            command = None if value is None else read_command(value, at, self.query)
        except BadCommandError as error:
            return self._refuse_record(error, at)
        if command is None:
            return []
        if (known := self.waiting.get(command.id)) is not None:
            return self._conflict(command, known.command.checksum)
        if (done := self.done.get(command.id)) is not None:
            return self._conflict(command, done["checksum"]) or [replace(self._answer_of(done), id="")]
        if command.answer and command.answer not in self._answers:
            sentence = f"The query sends no answers to the topic {command.answer}: its owner names the topics for them."
            return self._refuse_record(BadCommandError(sentence, command.id), at)
        told = {"outcome": "waiting"} if command.conditional else None
        told_now = [self._loose(command.id, command.answer, told)] if told else []
        return [AppendEntry({"read": command.to_json(), "since": next_epoch}), *told_now]

    def _conflict(self, command: ControlCommand, checksum: int) -> list[Instruction]:
        """Refuses a command that has the id of another one."""
        if command.checksum == checksum:
            return []
        said = f"The id {command.id} is that of another command: give each one of its own."
        return [self._loose(command.id, command.answer, {"outcome": "refused", "error": said})]

    def _refuse_record(self, error: BadCommandError, at: tuple[int, int]) -> list[Instruction]:
        if not error.id:
            self.garbage += 1
            return []
        if error.id in self.waiting or error.id in self.done:
            return [self._loose(error.id, "", {"outcome": "refused", "error": str(error)})]
        fields = {"id": error.id, "checksum": 0, "sender": "", "do": "", "at": list(at), "topic": ""}
        done = {**fields, "outcome": "refused", "error": str(error)}
        return [AppendEntry({"done": done}), self._answer_of(done)]

    def of_topic(self, id_: str) -> list[Instruction]:
        """Takes in the broker's id of the control topic, "" where it has not said it; a new one is read from its begin.

        Commands that were there before have the ids that they had, and are not carried out again.
        """
        return [AppendEntry({"topic_id": id_})] if id_ not in {"", self.topic_id} else []

    def passed(self, positions: Mapping[int, int]) -> list[Instruction]:
        """Takes in that all records before these positions were read and what they gave is durable."""
        later = {part: max(at, self.positions.get(part, 0)) for part, at in positions.items()}
        if later.items() <= self.positions.items():
            return []
        return [AppendEntry({"positions": {str(part): at for part, at in {**self.positions, **later}.items()}})]

    def due(self) -> list[int]:
        """Returns the times, ascending, whose bounds are not known."""
        waiting = (one for one in self.waiting.values() if one.bound is None)
        return sorted({one.command.time_ms for one in waiting if one.command.time_ms is not None})

    def bounded(self, time_ms: int, offsets: Offsets) -> list[Instruction]:
        """Takes in the bound of a time."""
        waiting = (one for one in self.waiting.values() if one.bound is None)
        return [_note_of(one.command.id, offsets) for one in waiting if one.command.time_ms == time_ms]

    def refused(self, begin: Offsets | None) -> list[tuple[Waiting, str]]:
        """Returns commands whose conditions the input can never reach, each with a sentence that says why."""
        if begin is None:
            return []
        told = ((one, one.lacking(begin)) for one in self.waiting.values())
        return [(one, sentence) for one, sentence in told if sentence]

    def recover(self, epochs: Mapping[str, int]) -> list[Instruction]:
        """Takes in commands that the driver has made durable before a crash: their ids and the first epoch of each."""
        carried = [(self.waiting[id_], epoch) for id_, epoch in epochs.items() if id_ in self.waiting]
        assert len(carried) <= 1, "each command is noted before the next one is carried out"
        return [
            told
            for one, epoch in carried
            for told in self._carried(one, epoch, self._generation - 1, {"id": command_id(one.command.id)})
        ]

    def reached(self, begin: Offsets | None) -> list[Waiting]:
        """Returns the commands that an epoch reaches which begins at these offsets, in the order to carry them out."""
        return sorted((one for one in self.waiting.values() if one.reached(begin)), key=lambda one: one.order)

    def carried(
        self, waiting: Waiting, epoch: int, answer: dict[str, Any] | None, error: str = ""
    ) -> list[Instruction]:
        """Takes in that a command was carried out before an epoch was planned, or refused with a sentence.

        What is noted says all that its place in the order depends on.
        """
        return self._carried(waiting, epoch, self._generation, answer, error)

    def _carried(
        self, waiting: Waiting, epoch: int, generation: int, answer: dict[str, Any] | None, error: str = ""
    ) -> list[Instruction]:
        command = waiting.command
        bound = None if waiting.bound is None else in_text(waiting.bound)
        done: dict[str, Any] = {
            "id": command.id, "checksum": command.checksum, "sender": command.sender, "do": command.request["do"],
            "at": list(command.at), "topic": command.answer, "time_ms": command.time_ms, "bound": bound,
            "since": waiting.since, "epoch": epoch, "generation": generation,
        }  # fmt: skip
        if answer is None:
            done |= {"outcome": "refused", "error": error}
        else:
            done |= {"number": self._numbers + 1, "outcome": "carried out", "answer": answer}
        return [AppendEntry({"done": done}), self._answer_of(done)]

    def sent(self, id_: str) -> list[Instruction]:
        """Takes in that the broker has taken a command's answer, or never will."""
        return [AppendEntry({"sent": id_})] if id_ in self._unsent else []

    def unsent(self) -> list[SendAnswer]:
        """Returns the answers that the broker has not taken."""
        return [self._answer_of(self.done[id_]) for id_ in self._unsent]

    def status(self) -> dict[str, Any]:
        """Returns the ids of waiting commands, and how many records came to what; may be called by another thread."""
        return {
            "waiting": list(self.waiting), "carried_out": self._numbers, "refused": self._refused,
            "garbage": self.garbage,
        }  # fmt: skip

    def _answer_of(self, done: Mapping[str, Any]) -> SendAnswer:
        told = {name: done[name] for name in ("outcome", "epoch", "number", "answer", "error") if name in done}
        return replace(self._loose(done["id"], done["topic"], told), id=done["id"])

    def _loose(self, id_: str, topic: str, told: Mapping[str, Any]) -> SendAnswer:
        to = topic if topic in self._answers else self._answers[0]
        return SendAnswer(to, f"{id_}/{self.query}", {"id": id_, "query": self.query, **told})


def command_id(id_: str) -> str:
    """Returns the id of the driver's command for that of a command of the control topic."""
    return f"{_PREFIX}{id_}"


def control_id(id_: str) -> str | None:
    """Returns the id in the control topic of a driver's command, None for one that came by another way."""
    return id_.removeprefix(_PREFIX) if id_.startswith(_PREFIX) else None


def _note_of(id_: str, offsets: Offsets) -> AppendEntry:
    return AppendEntry(_bound_note(id_, offsets))


def _bound_note(id_: str, offsets: Offsets) -> dict[str, Any]:
    return {"bound": in_text(offsets), "id": id_}
