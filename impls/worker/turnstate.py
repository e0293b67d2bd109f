"""What a worker in real-time mode knows beside its bins, committed with every turn, and how that is rebuilt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import lmdb
import numpy as np

from impls.durability.frame import Frame, frames_in, last_segment
from impls.durability.restore import Restored, RestoreRequest, restore
from impls.errors import CorruptStateError
from impls.protocol.jsontext import from_text, to_text
from impls.store.checked import get_checked, get_of_epoch, put_checked, put_of_epoch
from impls.store.tables import OUTBOX
from impls.worker.query import Task

_TURNS_BITS = 14  # a worker that begins numbers its turns from its tick times 2^14
_TURN, _TOLD, _FRAME = OUTBOX + b"turn", OUTBOX + b"told", OUTBOX + b"frame"


@dataclass(frozen=True, slots=True)
class TurnState:
    """A worker after a turn.

    Attributes:
        tick: the tick that the next turn belongs to: the one under way, or the one to come.
        turn: turns of that tick so far.
        batch: Spark's batch whose records came last.
        since: the number of the first turn of that batch; what was queued from then on comes again with the batch.
        begun: the last tick whose drops and merged partials are done.
        first: the number of the tick's first turn; before: that of the tick before. -1 for a worker that begins.
        report: of the tick under way, what must not be lost: pulls, and all of operators with event time; "" for none.
            It has a record of its own, and is in the frames of those turns alone that add to it.
        records, results: how many of each the tick has had so far; the next result has the number `results`.
        ended: of a turn that ends a tick, the worker's whole report, without `said`.
        times, ahead: [partition, highest event time] of the batch's records that count in the report of the tick under
            way, and in that of the next one, see `impls.realtime.merging`.
        said: those that have counted in the report of the last tick ended.
    """

    tick: int
    turn: int = 0
    batch: int = -1
    since: int = 0
    begun: int = -1
    first: int = -1
    before: int = -1
    report: str = ""
    records: int = 0
    results: int = 0
    ended: str = ""
    times: list[list[int]] = field(default_factory=list)
    ahead: list[list[int]] = field(default_factory=list)
    said: list[list[int]] = field(default_factory=list)

    @property
    def number(self) -> int:
        """Number of the next turn, which grows over the worker's whole life."""
        return self.first_of(self.tick) + self.turn

    def first_of(self, tick: int) -> int:
        """Returns the number of the first turn of a tick: of this one, the one before, or one to come."""
        if tick > self.tick:
            return self.number
        first = self.first if tick == self.tick else self.before
        return first if first >= 0 else tick << _TURNS_BITS

    def next_tick(self, tick: int) -> "TurnState":
        """Returns the state with which the tick behind one that ends with this turn begins."""
        first = max(self.number + 1, tick + 1 << _TURNS_BITS)  # a tick may have more turns than 2^14
        return replace(
            self, tick=tick + 1, turn=0, begun=tick, before=self.first_of(self.tick), first=first, report="", records=0,
            results=0,
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON-ready dictionary without what is empty."""
        return {name: value for name in self.__slots__ if (value := getattr(self, name)) not in ("", -1, [])}


def read_turn(txn: lmdb.Transaction) -> TurnState | None:
    """Returns what the last turn has committed, None before the first."""
    raw = get_checked(txn, _TURN)
    if raw is None:
        return None
    state = TurnState(**from_text(raw))
    told = get_of_epoch(txn, _TOLD, state.tick)
    return state if told is None else replace(state, report=told.decode())


def write_turn(txn: lmdb.Transaction, state: TurnState, *, told: bool) -> None:
    """Writes a worker's state after a turn, without `ended`; with `told` also its report, which has changed."""
    put_checked(txn, _TURN, to_text(replace(state, ended="", report="").to_json()))
    if told:
        put_of_epoch(txn, _TOLD, state.tick, state.report.encode())


def put_frame(txn: lmdb.Transaction, frame: bytes) -> None:
    """Stores a turn's frame, results included, with its commit: whoever opens the environment can repeat the rest."""
    put_checked(txn, _FRAME, frame)


def last_frame_of(txn: lmdb.Transaction) -> tuple[bytes, Frame] | None:
    """Returns the frame of the last turn committed, encoded and decoded, None before the first.

    Raises CorruptStateError when it is damaged, or is not that of the state that `read_turn` returns.
    """
    raw, state = get_checked(txn, _FRAME), read_turn(txn)
    if raw is None and state is None:
        return None
    if raw is not None and state is not None:
        frame = Frame.decode(raw, "the frame of the last turn")
        after = {} if frame.turn is None else frame.turn["after"]
        if (after.get("tick"), after.get("turn")) == (state.tick, state.turn):
            return raw, frame
    raise CorruptStateError("The frame of the worker's last turn is not where it was stored.")


def has_worked(task: Task) -> bool:
    """Returns whether the changelog has turns of the worker in its epoch, also where it began with nothing."""
    files = task.spec.files
    return task.spec.turns and files is not None and bool(frames_in(files, task.worker, task.epoch))


def _after(segment: Sequence[Frame]) -> TurnState:
    """Returns a worker's state after the last turn of a segment."""
    turns = [TurnState(**(frame.turn or {})["after"]) for frame in segment]
    told = [turn.report for turn in turns if turn.report and turn.tick == turns[-1].tick]
    return replace(turns[-1], report=told[-1] if told else "")


def refill(task: Task, txn: lmdb.Transaction, states: dict[int, int], have: Mapping[int, int]) -> tuple[Restored, int]:
    """Puts a worker as it was after its last turn into an empty environment; returns also the last epoch it ended.

    Args:
        task: the worker's task in an epoch that it may have worked in already, and even ended.
        txn: gets bins, queues and what the turn has committed beside them.
        states: bin -> worker that held it when the epoch began.
        have: bin -> epoch whose end the transaction shows the bin at already.
    """
    source, files = task.spec.source(), task.spec.files
    assert source is not None, "an environment is rebuilt from durable files alone"
    assert files is not None, "the same"
    segment = last_segment(files, task.worker, task.epoch)
    last = segment[-1] if segment else None
    now = frames_in(files, task.worker, task.epoch)
    later = [*now, *frames_in(files, task.worker, task.epoch + 1)]
    states = states | {bin_: task.worker for frame in later for bin_, _ in frame.pulls}
    queues = tuple(np.flatnonzero(task.order.written.plan.routing == task.worker).tolist())
    upto = task.epoch - 1 if last is None else max(task.epoch - 1, last.epoch)
    request = RestoreRequest(states, queues, task.worker, have, task.epoch, task.progress)
    restored = restore(source, txn, upto, request)
    if last is not None and last.turn is not None:
        write_turn(txn, _after(segment), told=True)
        put_frame(txn, last.encode())
    said = [(frame.turn or {}).get("after", {}).get("ended") for frame in now]
    ended = [report for report in said if report]
    if ended:
        put_of_epoch(txn, OUTBOX + b"report", task.epoch, ended[-1].encode())
    return restored, task.epoch if ended else task.epoch - 1
