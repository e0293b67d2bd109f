"""A query reads its control topic, carries commands out between two epochs, and sends the answers."""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from impls.brokers import reaching
from impls.closing import close_all, end_all
from impls.controltopic.client import AnswerSender, CommandReader
from impls.controltopic.commands import Offsets, Waiting
from impls.controltopic.pending import AppendEntry, Instruction, PendingCommands, SendAnswer, command_id, control_id
from impls.controltopic.topic import ControlTopic, TimeFinder
from impls.driver.checkpoint import Checkpoint
from impls.driver.control import Answerer
from impls.driver.driver import Driver
from impls.driver.journal import read_journal
from impls.errors import ADVICE, StateError, UsageError
from impls.protocol.events import identified

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

    def __init__(self, checkpoint: Checkpoint, topic: ControlTopic):
        allowed = (topic.answers, *topic.answer_topics)
        self.pending, self._rewrite_at = PendingCommands(topic.query, allowed, checkpoint.generation), float("inf")
        self._journal = checkpoint.journal(_NAME)
        path = self._journal.path
        with ExitStack() as opened:
            opened.enter_context(self._journal)
            try:
                for entry in read_journal(path):
                    self.pending.apply(entry)
            except (StateError, KeyError, TypeError, ValueError) as error:
                raise UsageError(f"The control journal {path} does not fit together ({error}): {ADVICE}.") from error
            self.obey(self.pending.recover(_commanded(checkpoint.commands.path)))
            self._rewrite()
            opened.pop_all()

    def obey(self, instructions: Iterable[Instruction]) -> list[SendAnswer]:
        """Makes notes durable, applies them to the pending commands, and returns the answers that are not kept there.

        Raises StateError when the journal cannot be written.
        """
        loose = []
        for instruction in instructions:
            if isinstance(instruction, AppendEntry):
                self._journal.append(instruction.entry)
                self.pending.apply(instruction.entry)
            elif not instruction.id:
                loose.append(instruction)
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


_LOG = logging.getLogger(__package__)


class Carrier:
    """Carries out, in their order, the commands that an epoch reaches.

    The driver makes each durable under an id that tells the command's, and then the control log notes it: a crash
    between the two is seen when the log is opened again.

    Args:
        log: the control log.
        find: returns the bound of a time in the partitions of the offsets given, None while it has none.
        answer: carries out a request, see `impls.driver.control.Answerer`.
        ending: returns whether the query ends before the epoch.
    """

    def __init__(
        self,
        log: ControlLog,
        find: Callable[[int, Offsets], Offsets | None],
        answer: Callable[[dict[str, Any]], dict[str, Any]],
        ending: Callable[[], bool],
    ):
        self._log, self._find, self._answer, self._ending = log, find, answer, ending

    def before(self, epoch: int, begin: Offsets | None) -> None:
        """Acts before an epoch that begins at these offsets, see `PendingCommands.reached`.

        Raises StateError when a journal cannot be written.
        """
        pending = self._log.pending
        self._find_bounds(begin)
        for waiting, sentence in pending.refused(begin):
            _LOG.info("The command %s is refused: %s", waiting.command.id, sentence)
            self._log.obey(pending.carried(waiting, epoch, None, sentence))
        for waiting in pending.reached(begin):
            if self._ending():
                return  # what is left waits for the next start
            self._carry_out(waiting, epoch)

    def _find_bounds(self, begin: Offsets | None) -> None:
        """Looks up times without bounds, the earliest first: where one has none, later ones have none either."""
        for time_ms in self._log.pending.due() if begin else ():
            offsets = self._find(time_ms, begin or {})
            if offsets is None:
                return
            self._log.obey(self._log.pending.bounded(time_ms, offsets))

    def _carry_out(self, waiting: Waiting, epoch: int) -> None:
        answer, refused = None, ""
        with identified(command_id(waiting.command.id)) as identity:
            try:
                answer = self._answer(waiting.command.request)
            except StateError:
                raise
            except Exception as error:  # whatever a record says must not end the query, now and at every start
                if identity.used:
                    raise  # it is carried out, and somebody who was told of it has failed
                known = isinstance(error, UsageError)
                refused = str(error) if known else f"The request is not understood: {type(error).__name__}: {error}."
        if refused and self._ending():
            return  # the query was stopped meanwhile, which is no fault of the command
        _LOG.info(
            "The command %s is %s with epoch %s.", waiting.command.id, "refused" if refused else "carried out", epoch
        )
        self._log.obey(self._log.pending.carried(waiting, epoch, answer, refused))


Begin = Callable[[int], Offsets | None]
"""Returns the offsets at which an epoch begins, None while they are not known, {} if it will never have any."""

_POLL_S = 0.1
_RETRY_S = 1.0
_CLOSE_S = 3.0
_END_S = 30.0


class ControlListener:
    """start() makes it hear; from then on it acts in the driver's thread before each epoch is planned.

    Its own thread only reads and sends, so a broker that is away delays commands and answers and nothing else.

    Args:
        topic: the control topic.
        checkpoint: the query's, which gets the control journal.
        driver: the query's.
        begin: says where an epoch begins.
        inputs: librdkafka's settings for the broker of the input, None where they are those of the control topic.

    Raises:
        UsageError: the control journal is damaged.
    """

    def __init__(
        self, topic: ControlTopic, checkpoint: Checkpoint, driver: Driver, begin: Begin,
        inputs: Mapping[str, str] | None = None,
    ):  # fmt: skip
        self._log = ControlLog(checkpoint, topic)
        self._driver, self._begin = driver, begin
        self._next_epoch = driver.next_planned
        own = dict(inputs or {})
        place = topic.inputs or own.get("bootstrap.servers") or topic.bootstrap
        self._times = TimeFinder(place, reaching(place, own, topic.options, topic.inputs or topic.bootstrap))
        self._reader, self._sender = CommandReader(topic), AnswerSender(topic)
        self._lock = threading.Lock()  # of log and pending commands
        self._loose: list[SendAnswer] = []
        self._stopped = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="control-topic", daemon=True)

    def start(self, answer: Answerer) -> "ControlListener":
        """Lets `answer` take requests from now on."""
        self._carrier = Carrier(self._log, self._times.find, answer, lambda: self._driver.ending)
        self._driver.before_plan.append(self._before_plan)
        self._thread.start()
        return self

    def status(self) -> dict[str, Any]:
        """Returns the ids that wait, numbers of commands and garbage, and why the broker cannot be reached, if so."""
        trouble = self._reader.trouble  # without the lock: whoever asks may hold one that a command waits for
        return {**self._log.pending.status(), **({"trouble": trouble} if trouble else {})}

    def close(self) -> None:
        """Sends the answers that there are, if the broker takes them in 3 s; the next start sends the others."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join(_END_S)  # each of its calls has a deadline of a few seconds
        with self._lock:
            close_all((self._times.close, self._log.close), "control topic")

    def _before_plan(self, epoch: int) -> None:
        """Has the commands carried out that an epoch reaches; the first one makes the state, so it has none.

        Raises StateError when the control journal cannot be written, or the reader's thread has failed.
        """
        if self._failure is not None:
            raise StateError(f"The control topic is no longer read: {self._failure}") from self._failure
        with self._lock:
            if epoch > 0 and self._log.pending.waiting:
                self._carrier.before(epoch, self._begin(epoch))
            self._next_epoch = epoch + 1

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                self._read()
                self._send()
            self._send()
            self._sender.flush(_CLOSE_S)
            self._take_in_sent()
        except Exception as error:  # such as a journal that cannot be written: the next epoch says so
            _LOG.error("The control topic is no longer read: %s: %s", type(error).__name__, error)
            self._failure = error
        finally:
            end_all((self._reader.close,), "control topic")

    def _read(self) -> None:
        """Takes in what has come, waiting for it a moment."""
        if not self._reader.connected:
            topic_id = self._reader.topic_id()
            with self._lock:
                self._log.obey(self._log.pending.of_topic(topic_id))
                positions = dict(self._log.pending.positions)
            if not self._reader.connect(positions):
                self._stopped.wait(_RETRY_S)
                return
        records = self._reader.take(_POLL_S)
        with self._lock:
            for record in records:
                self._loose += self._log.obey(self._log.pending.read(record.value, record.at, self._next_epoch))
            self._log.obey(self._log.pending.passed({record.at[0]: record.at[1] + 1 for record in records}))

    def _send(self) -> None:
        """Sends answers: those that need no word of the broker, and those of which it has not said that it has them."""
        self._take_in_sent()
        with self._lock:
            answers, self._loose = [*self._loose, *self._log.pending.unsent()], []
        for answer in answers:
            self._sender.send(answer)

    def _take_in_sent(self) -> None:
        with self._lock:
            for id_ in self._sender.taken():
                self._log.obey(self._log.pending.sent(id_))
