"""The control journal of a checkpoint: the notes of pending commands, kept for as long as the checkpoint is."""

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from impls.controltopic.pending import Answer, Instruction, Note, PendingCommands, control_id
from impls.driver.checkpoint import Checkpoint
from impls.driver.journal import read_journal
from impls.errors import ADVICE, StateError, UsageError

_NAME = "control"
_REWRITE_BYTES = 4 << 20


class ControlLog:
    """obey() what the pending commands note: notes are durable before they change it.

    The journal is written anew, shorter, when it is opened and when it has grown by as much as it had then: an id keeps
    one line for ever.

    Attributes:
        pending: what the journal says.

    Raises:
        UsageError: the journal is damaged.
    """

    def __init__(self, checkpoint: Checkpoint, query: str, answers: str):
        self.pending, self._rewrite_at = PendingCommands(query, answers, checkpoint.generation), float("inf")
        self._journal = checkpoint.journal(_NAME)
        path = self._journal.path
        with ExitStack() as opened:
            opened.enter_context(self._journal)
            try:
                for entry in read_journal(path):
                    self.pending.apply(entry)
            except (StateError, KeyError, TypeError, ValueError) as error:
                raise UsageError(f"The control journal {path} does not fit together ({error}): {ADVICE}.") from error
            self.obey(self.pending.found(_commanded(checkpoint.commands.path)))
            self._rewrite()
            opened.pop_all()

    def obey(self, instructions: Iterable[Instruction]) -> list[Answer]:
        """Makes notes durable, applies them to the pending commands, and returns the answers that are not kept there.

        Raises StateError when the journal cannot be written.
        """
        loose = []
        for one in instructions:
            if isinstance(one, Note):
                self._journal.append(one.entry)
                self.pending.apply(one.entry)
            elif not one.id:
                loose.append(one)
        if self._journal.size > self._rewrite_at:
            self._rewrite()
        return loose

    def _rewrite(self) -> None:
        self._journal.rewrite(self.pending.notes(), base=-1)
        self._rewrite_at = 2 * self._journal.size + _REWRITE_BYTES

    def close(self) -> None:
        """Closes the journal."""
        self._journal.close()


def _commanded(path: Path) -> dict[str, int]:
    """Returns the first epochs of the driver's commands that came from the control topic, by their ids there."""
    entries = read_journal(path)
    return {id_: entry["from_epoch"] for entry in entries if (id_ := control_id(entry["id"])) is not None}
