"""What is done with the commands of a control topic before an epoch is planned."""

import logging
from collections.abc import Callable
from typing import Any

from impls.controltopic.commands import Offsets
from impls.controltopic.log import ControlLog
from impls.controltopic.pending import command_id
from impls.controltopic.waiting import Waiting
from impls.errors import StateError, UsageError
from impls.protocol.events import identified

__all__ = ["Carrier"]

_LOG = logging.getLogger(__package__)


class Carrier:
    """Carries out, in their order, the commands that an epoch reaches.

    The driver makes each durable under an id that tells the command's, and then the control log notes it: a crash
    between the two is seen when the log is opened again.

    Args:
        log: the control log.
        find: returns the bound of a time in the partitions of the offsets given, None while it has none.
        answer: carries out a request, see `impls.driver.handle.Answerer`.
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
        for one, sentence in pending.refused(begin):
            _LOG.info("The command %s is refused: %s", one.command.id, sentence)
            self._log.obey(pending.carried(one, epoch, None, sentence))
        for one in pending.reached(begin):
            if self._ending():
                return  # what is left waits for the next start
            self._carry_out(one, epoch)

    def _find_bounds(self, begin: Offsets | None) -> None:
        """Looks up times without bounds, the earliest first: where one has none, later ones have none either."""
        for time_ms in self._log.pending.due() if begin else ():
            offsets = self._find(time_ms, begin or {})
            if offsets is None:
                return
            self._log.obey(self._log.pending.bounded(time_ms, offsets))

    def _carry_out(self, one: Waiting, epoch: int) -> None:
        answer, refused = None, ""
        with identified(command_id(one.command.id)) as identity:
            try:
                answer = self._answer(one.command.request)
            except StateError:
                raise
            except Exception as error:  # whatever a record says must not end the query, now and at every start
                if identity.used:
                    raise  # it is carried out, and somebody who was told of it has failed
                known = isinstance(error, UsageError)
                refused = str(error) if known else f"The request is not understood: {type(error).__name__}: {error}."
        if refused and self._ending():
            return  # the query was stopped meanwhile, which is no fault of the command
        _LOG.info("The command %s is %s with epoch %s.", one.command.id, "refused" if refused else "carried out", epoch)
        self._log.obey(self._log.pending.carried(one, epoch, answer, refused))
