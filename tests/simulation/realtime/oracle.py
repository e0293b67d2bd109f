"""What must hold after every epoch, and at the end, whatever happened."""

import hashlib
import json
from collections import Counter
from typing import Any

import lmdb
import numpy as np
from chaos.oracle import opened, sound_items
from chaos.violation import require

from impls.durability.restore import RestoreRequest, restore
from impls.errors import CorruptStateError, StateError
from impls.store.entries import SLOTS, open_value
from impls.store.environment import Store, store_path
from impls.store.tables import DENSE, DROPPED, DUE, OFFSETS, QUEUE, SHAPE, SIZE, STATE
from impls.worker.results import Deduplicator, Number
from realtime.commits import Commits, Folded
from realtime.parameters import Parameters
from realtime.query import Query

_STATE = (STATE, DENSE, DUE, OFFSETS, SHAPE)
Items = dict[bytes, bytes]


class Oracle:
    """epoch() after every epoch, end() when all is done.

    Attributes:
        digest: of every result and of what the controller knows after every epoch.
    """

    def __init__(self, p: Parameters, query: Query, scratch: Store, commits: Commits):
        self._p, self._query, self._scratch, self._commits = p, query, scratch, commits
        self._plans: dict[int, Any] = {}
        self._seen, self._read = Deduplicator(), 0
        self._sent: dict[tuple[int, int, int], tuple[int, bytes, bytes]] = {}
        self._place: Counter[int] = Counter()  # by key, results of its history that are behind what was sent last
        self._last: dict[int, bytes] = {}
        self._answers: list[str] = []
        self.digest = hashlib.sha256(str(p).encode())

    def epoch(self) -> None:
        """Compares what was sent since the last epoch with what could be, and environments with the changelog."""
        self._results()
        controller, query = self._query.driver.controller, self._query
        self._plans[query.driver.last_epoch] = controller.changing.required.copy()
        known = controller.to_json()
        self.digest.update(json.dumps([known, query.steps], sort_keys=True).encode())
        whole = query.session is not None and query.session.dying is None
        for worker in range(query.record.written.workers if whole else 0):
            here = set(np.flatnonzero(controller.location == worker).tolist())
            items = self._items(worker, here)
            held = {_bin(name) for name in items if name[:1] == SIZE}
            waiting = {drop.bin for drop in controller._drops if drop.worker == worker}
            strange = held - here - waiting
            require(not strange, "one owner", f"worker {worker} holds bins {sorted(strange)} of others")
            dying = {_bin(name) for name in items if name[:1] == DROPPED}
            left = {_bin(name) for name in items if name[:1] in _STATE} - held - dying
            require(not dying & here, "one owner", f"worker {worker} drops bins {sorted(dying & here)} of its own")
            require(not left, "one owner", f"worker {worker} has pieces of bins {sorted(left)} that it does not drop")
            if query.driver.last_epoch % 3 == 2:
                self._restored(worker, items, here)

    # -- results ------------------------------------------------------------------------------------------------------

    def _results(self) -> None:
        rows, self._read = self._query.topic.rows[self._read :], len(self._query.topic.rows)
        for worker, epoch, index, commit, key, value in rows:
            self.digest.update(b"%d %d %d %s %s" % (worker, epoch, index, key, value))
            before = self._sent.setdefault((worker, epoch, index), (commit, key, value))
            same = before == (commit, key, value)
            require(same, "repeats", f"result {index} of worker {worker} in epoch {epoch} is sent with another content")
            if not self._seen.accept(0, Number(0, worker, 0, epoch, index)):
                continue
            if self._p.timed:
                self._answers.append(self._query.load.answer(value))
            elif not self._p.changes:
                self._new(int.from_bytes(key, "big"), value)

    def _new(self, key: int, value: bytes) -> None:
        """A key's results are those of its history, in order; those of records that were applied together are one."""
        history, at = self._query.load.history[key], self._place[key]
        found = next((place for place in range(at, len(history)) if history[place] == value), None)
        require(found is not None, "results", f"key {key} has the result {value!r}, which does not follow")
        self._place[key] = found + 1  # type: ignore[operator]
        self._last[key] = value

    # -- state --------------------------------------------------------------------------------------------------------

    def _items(self, worker: int, here: set[int]) -> Items:
        """Returns what a worker's environment holds; where bits flipped that nobody has read, what a rebuild gives."""
        path, flipped = store_path(self._query.spec.state_dir, worker), self._query.flipped
        try:
            with Store.open(path, create=False) as store, store.reading(buffers=False) as txn:
                if flipped:
                    return sound_items(txn)
                return opened((bytes(name), bytes(value)) for name, value in txn.cursor().iternext())
        except CorruptStateError as error:
            require(flipped, "environment", f"worker {worker}: {error}")
        return self._rebuilt(worker, here)

    def _queues_of(self, worker: int) -> tuple[int, ...]:
        return tuple(np.flatnonzero(self._query.driver.controller.routing == worker).tolist())

    def _rebuilt(self, worker: int, here: set[int]) -> Items:
        """Returns what the checkpoint alone gives."""
        source, epoch = self._query.spec.source(), self._query.driver.last_epoch
        assert source is not None, "with durability none neither bits flip nor is anything compared"
        request = RestoreRequest(
            dict.fromkeys(sorted(here), worker), self._queues_of(worker), worker, open_from=epoch + 1
        )
        txn = self._scratch.env.begin(write=True, buffers=True)
        try:
            restore(source, txn, epoch + 1, request)
            return opened((bytes(name), bytes(value)) for name, value in txn.cursor().iternext())
        except (StateError, lmdb.Error, KeyError, AssertionError) as error:
            require(False, "restore", f"worker {worker} cannot be restored: {error!r}")
            raise
        finally:
            txn.abort()

    def _restored(self, worker: int, items: Items, here: set[int]) -> None:
        """What the checkpoint alone gives is what the environment has, the commits behind the epoch included."""
        if self._query.files is None:
            return
        found, queues = self._rebuilt(worker, here), self._queues_of(worker)
        for tables, bins in ((_STATE, here), ((QUEUE,), set(queues))):
            ours, theirs = ({n: v for n, v in i.items() if n[:1] in tables and _bin(n) in bins} for i in (items, found))
            differ = sorted({_bin(n) for n in ours.keys() | theirs.keys() if ours.get(n) != theirs.get(n)})
            what = f"restored from the checkpoint bins {differ} of worker {worker} differ"
            require(not differ, "restore", f"{what}: {_first(ours, theirs)}" if differ else "")

    # -- the end ------------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Every record has had its effect, once, and every bin is where it is to be."""
        controller, load = self._query.driver.controller, self._query.load
        require(not controller.queued.any(), "goal", "something is queued")
        require(controller.misplaced == 0 and not controller.migrating, "goal", "bins are misplaced")
        offsets: dict[tuple[int, int], tuple[int, int]] = {}
        state: dict[int, Any] = {}
        for worker in range(self._query.record.written.workers):
            here = set(np.flatnonzero(controller.location == worker).tolist())
            items = self._items(worker, here)
            require(not any(name[:1] == QUEUE for name in items), "goal", f"worker {worker} has records queued")
            state |= self._decoded({n: v for n, v in items.items() if n[:1] in {STATE, DENSE} and _bin(n) in here})
            for name, value in items.items():
                if name[:1] == OFFSETS and _bin(name) in here:
                    last = open_value(name, value)
                    place = int.from_bytes(last[:8], "big"), int.from_bytes(last[8:], "big")
                    offsets[_bin(name), int.from_bytes(name[3:], "big", signed=True)] = place
        require(offsets == load.offsets(), "offsets", f"bins have applied {offsets}, not {load.offsets()}")
        self._reported()
        folded = self._versions()
        if self._p.timed:
            self._same_answers()
            return
        if self._p.changes:
            require(state == folded.state, "state", f"the state is {_differing(state, folded.state)}")
            return
        require(state == load.truth, "state", f"the state is {_differing(state, load.truth)}")
        want = {key: history[-1] for key, history in load.history.items() if history[-1] is not None}
        lost = sorted(key for key, value in want.items() if self._last.get(key) != value)
        require(not lost, "results", f"the last results of the keys {lost} are missing")

    def _versions(self) -> Folded:
        """Each record has run once, under a version that its plan and its worker's commits allow."""
        query, changing = self._query, self._query.driver.controller.changing
        query.asking.check_end(changing)
        self._without_gaps()
        folded = self._commits.fold(query.load, query.asking.recipes, self._plans, timed=self._p.timed)
        silent = {commit.refused for commit in self._commits.held} - {0, *query.asking.refused(changing)}
        require(not silent, "changes", f"workers have refused the versions {silent}, which are not taken back")
        known = {bin_: shape for bin_, shape in enumerate(changing.shape.tolist()) if shape}
        ours = {bin_: shape for bin_, shape in folded.shape.items() if shape}
        require(known == ours, "shapes", f"the controller knows of the shapes {known}, not {ours}")
        if not self._p.timed:
            found: dict[tuple[int, int, int], dict[int, bytes]] = {}
            for (worker, epoch, _), (commit, key, value) in self._sent.items():
                found.setdefault((worker, epoch, commit), {})[int.from_bytes(key, "big")] = value
            want = {commit: results for commit, results in folded.results.items() if results}
            differ = sorted(commit for commit in want.keys() | found.keys() if want.get(commit) != found.get(commit))
            first = f"{found.get(differ[0])}, not {want.get(differ[0])}" if differ else ""
            require(not differ, "results", f"commits {differ[:5]} (worker, epoch, commit) have sent {first}")
        return folded

    def _without_gaps(self) -> None:
        """The results of a worker in an epoch are numbered one behind the other."""
        numbers: dict[tuple[int, int], list[int]] = {}
        for worker, epoch, index in self._sent:
            numbers.setdefault((worker, epoch), []).append(index)
        gaps = [place for place, found in numbers.items() if sorted(found) != list(range(len(found)))]
        require(not gaps, "numbers", f"results of (worker, epoch) {gaps[:5]} have gaps in their numbers")

    def _reported(self) -> None:
        """Where no driver died between noting the end of an epoch and telling of it, all records are told of, once."""
        if len(self._query.applied) <= self._query.driver.last_epoch:
            return
        load = self._query.load
        applied, come = (
            sum(self._query.applied.values()),
            sum(map(len, load.log)) - len(load.refused | load.senders.repeats),
        )
        require(applied == come, "reports", f"workers have reported {applied} of {come} records")

    def _same_answers(self) -> None:
        want, found = Counter(self._query.load.answers()), Counter(self._answers)
        what = f"missing {list((want - found).elements())[:3]}, too many {list((found - want).elements())[:3]}"
        require(want == found, "results", f"{(want - found).total()} + {(found - want).total()} answers differ: {what}")

    def _decoded(self, items: Items) -> dict[int, Any]:
        found: dict[int, Any] = {}
        for name, value in items.items():
            if name[:1] == DENSE:
                found |= self._dense(_bin(name), int.from_bytes(name[3:], "big"), value)
            elif not self._p.timed:
                raw, chained = value[:-4], self._p.operator == "chain"
                key = int.from_bytes(name[3:], "big")
                found[key] = tuple(json.loads(raw)) if chained else int.from_bytes(raw, "little")
        return found

    def _dense(self, bin_: int, block: int, value: bytes) -> dict[int, int]:
        per_bin = -(-self._p.keys // self._p.bins)
        first, last = bin_ * per_bin + block * SLOTS, min((bin_ + 1) * per_bin, self._p.keys)
        return dict(zip(range(first, last), np.frombuffer(value, "<u8", SLOTS).tolist(), strict=False))


def _bin(name: bytes) -> int:
    return int.from_bytes(name[1:3], "big")


def _first(ours: Items, theirs: Items) -> str:
    name = min(n for n in ours.keys() | theirs.keys() if ours.get(n) != theirs.get(n))
    return f"{name!r} is {ours.get(name)!r} there and {theirs.get(name)!r} restored"


def _differing(found: dict[int, Any], want: dict[int, Any]) -> dict[int, Any]:
    keys = sorted(found.keys() | want.keys())
    return {key: (found.get(key), want.get(key)) for key in keys if found.get(key) != want.get(key)}
