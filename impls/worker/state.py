"""What a worker knows beside its bins, stored with every commit, and the record by which a commit can be repeated."""

from dataclasses import dataclass, field, replace
from typing import Any

import lmdb

from impls.durability.frame import Frame
from impls.errors import CorruptStateError
from impls.protocol.jsontext import from_text, to_text
from impls.store.checked import get_checked, get_of_epoch, put_checked, put_of_epoch
from impls.store.tables import AFTER, OUTBOX

_COMMITS_BITS = 14  # a worker that begins numbers its commits from its epoch times 2^14
# beside the queues stands what is small: whoever reads them checks it
_STATE, _REPORT, _RECORD = AFTER, OUTBOX + b"so-far", OUTBOX + b"commit"


@dataclass(frozen=True, slots=True)
class WorkerState:
    """A worker after a commit.

    Attributes:
        epoch: the epoch that the next commit belongs to: the one under way, or the one to come.
        commits: of that epoch so far.
        batch: Spark's batch whose records came last, -1 where batches do not come again.
        since: the number of the first commit of that batch; what was queued from then on comes again with the batch.
        begun: the last epoch whose drops are done.
        first: the number of the epoch's first commit; before: that of the epoch before. -1 for a worker that begins.
        report: of the epoch under way, what must not be lost: pulls and event times; "" for none.
            It is an item of its own, and is in the records of those commits alone that add to it.
        records, results: how many of each the epoch has had so far; the next result has the index `results`.
        times, ahead: [partition, highest event time] of the batch's records that count in the report of the epoch under
            way, and in that of the next one, see `impls.worker.reports`.
        counted: those that have counted in the report of the last epoch ended.
        risen: the watermark, where it has risen within the epoch under way.
    """

    epoch: int
    commits: int = 0
    batch: int = -1
    since: int = 0
    begun: int = -1
    first: int = -1
    before: int = -1
    report: str = ""
    records: int = 0
    results: int = 0
    times: list[list[int]] = field(default_factory=list)
    ahead: list[list[int]] = field(default_factory=list)
    counted: list[list[int]] = field(default_factory=list)
    risen: int | None = None

    @property
    def number(self) -> int:
        """Number of the next commit, which grows over the worker's whole life."""
        return self.first_of(self.epoch) + self.commits

    def first_of(self, epoch: int) -> int:
        """Returns the number of the first commit of an epoch: of this one, the one before, or one to come."""
        if epoch > self.epoch:
            return self.number
        first = self.first if epoch == self.epoch else self.before
        return first if first >= 0 else epoch << _COMMITS_BITS

    def next_epoch(self, epoch: int) -> "WorkerState":
        """Returns the state with which the epoch behind one that ends with this commit begins."""
        first = max(self.number + 1, epoch + 1 << _COMMITS_BITS)  # an epoch may have more commits than 2^14
        return replace(
            self, epoch=epoch + 1, commits=0, begun=epoch, before=self.first_of(self.epoch), first=first, report="",
            records=0, results=0, risen=None,
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON-ready dictionary without what is empty."""
        return {name: value for name in self.__slots__ if (value := getattr(self, name)) not in ("", -1, [], None)}


def read_state(txn: lmdb.Transaction) -> WorkerState | None:
    """Returns what the last commit has stored, None before the first."""
    raw = get_checked(txn, _STATE)
    if raw is None:
        return None
    state = WorkerState(**from_text(raw))
    report = get_of_epoch(txn, _REPORT, state.epoch)
    return state if report is None else replace(state, report=report.decode())


def write_state(txn: lmdb.Transaction, state: dict[str, Any], report: str | None) -> None:
    """Writes a worker's state after a commit, as `to_json` gives it; and its report, None where that is stored."""
    put_checked(txn, _STATE, to_text({name: value for name, value in state.items() if name != "report"}))
    if report is not None:
        put_of_epoch(txn, _REPORT, state["epoch"], report.encode())


def forget_state(txn: lmdb.Transaction) -> None:
    """Deletes what commits of an earlier life of the worker have stored beside its bins."""
    for name in (_STATE, _REPORT, _RECORD):
        txn.delete(name)


def put_record(txn: lmdb.Transaction, record: bytes) -> None:
    """Stores a commit's frame, with its results: whoever opens the environment can repeat what follows the commit."""
    put_checked(txn, _RECORD, record)


def last_record(txn: lmdb.Transaction) -> tuple[bytes, Frame] | None:
    """Returns the record of the last commit, encoded and decoded, None before the first.

    Raises CorruptStateError when it is damaged, or is not that of the state that `read_state` returns.
    """
    raw, state = get_checked(txn, _RECORD), read_state(txn)
    if raw is None and state is None:
        return None
    if raw is not None and state is not None:
        frame = Frame.decode(raw, "the record of the last commit")
        after = {} if frame.commit is None else frame.commit["after"]
        if (after.get("epoch"), after.get("commits")) == (state.epoch, state.commits):
            return raw, frame
    raise CorruptStateError("The record of the worker's last commit is not where it was stored.")
