"""A query's ear on its control topic: reads commands, has them carried out between two epochs, sends the answers."""

import threading
from collections.abc import Callable
from typing import Any

from impls.controltopic.carrying import Carrier
from impls.controltopic.clients import AnswerSender, CommandReader
from impls.controltopic.commands import Offsets
from impls.controltopic.log import ControlLog
from impls.controltopic.pending import Answer
from impls.controltopic.times import TimeFinder
from impls.controltopic.topic import ControlTopic
from impls.driver.checkpoint import Checkpoint
from impls.driver.driver import Driver
from impls.driver.handle import Answerer
from impls.errors import StateError

__all__ = ["Begin", "ControlListener"]

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

    Raises:
        UsageError: the control journal is damaged.
    """

    def __init__(self, topic: ControlTopic, checkpoint: Checkpoint, driver: Driver, begin: Begin):
        self._log = ControlLog(checkpoint, topic.query, topic.answers)
        self._driver, self._begin = driver, begin
        self._next_epoch = driver.next_planned
        self._times = TimeFinder(topic.inputs or topic.bootstrap)
        self._reader, self._sender = CommandReader(topic), AnswerSender(topic)
        self._lock = threading.Lock()  # of log and pending commands
        self._loose: list[Answer] = []
        self._stopped = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="control-topic", daemon=True)

    def start(self, answer: Answerer) -> "ControlListener":
        """Lets `answer` take requests from now on."""
        self._carrier = Carrier(self._log, self._times.find, answer, lambda: self._driver.ending)
        self._driver.before_plan = self._before_plan
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
            self._times.close()
            self._log.close()

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
            self._failure = error
        finally:
            self._reader.close()

    def _read(self) -> None:
        """Takes in what has come, waiting for it a moment."""
        if not self._reader.connected:
            with self._lock:
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
