"""Queries on a control topic without Kafka and Spark, drivers that die at any durable step, and a judge of it all.

The control topic is a list of records, the input a list of times per partition. Driver, checkpoint and journals are
real; an epoch is as long as the test says.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from impls import catalog
from impls.controltopic.listener import Carrier, ControlLog
from impls.controltopic.pending import SendAnswer, control_id
from impls.controltopic.topic import ControlTopic
from impls.driver.checkpoint import Checkpoint
from impls.driver.driver import Driver
from impls.driver.journal import Journal
from impls.errors import UsageError
from impls.protocol.controller import Controller
from impls.protocol.order import Answers
from impls.protocol.report import MovesReport, Report
from impls.worker.cells import CELL

__all__ = ["Death", "Died", "Input", "PullEverything", "Query", "findings", "record"]

BINS = 4
START = np.zeros(BINS, np.int32)


class Died(Exception):  # noqa: N818 - no error of the driver
    """Stands for the death of the driver."""


class Death:
    """Lets the driver die at the n-th append to a journal from now on, before it or behind it.

    Attributes:
        commanded: ids in the control topic of the commands that drivers have made durable, in their order.
        appends: number of appends so far.
    """

    def __init__(self, patch: Any):
        self.commanded: list[str] = []
        self.appends = 0
        self._left, self._behind, plain = 0, False, Journal.append

        def append(journal: Journal, entry: dict[str, Any]) -> None:
            self._left -= 1
            if self._left == 0 and not self._behind:
                raise Died
            plain(journal, entry)
            self.appends += 1
            if journal.path.name == "commands.log":
                self.commanded.append(control_id(entry["id"]) or "")
            if self._left == 0:
                raise Died

        patch.setattr(Journal, "append", append)

    def at(self, append: int, *, behind: bool) -> None:
        self._left, self._behind = append, behind


@dataclass
class Input:
    """Topic "in": of each partition the times of its records in ms; a prefix of each is there already."""

    times: Sequence[Sequence[int]]
    there: list[int] = field(default_factory=list)

    def grow(self, records: Iterable[int]) -> None:
        """Lets so many more records of each partition be there."""
        before = self.there or [0] * len(self.times)
        self.there = [min(n + more, len(t)) for n, more, t in zip(before, records, self.times, strict=True)]

    @property
    def end(self) -> dict[str, dict[int, int]]:
        return {"in": dict(enumerate(self.there or [0] * len(self.times)))}

    def find(self, time_ms: int, begin: Mapping[str, Mapping[int, int]]) -> dict[str, dict[int, int]] | None:
        """As `TimeFinder.find`."""
        found = {}
        for part in begin["in"]:
            at = next((n for n in range(self.end["in"][part]) if self.times[part][n] >= time_ms), None)
            if at is None:
                return None
            found[part] = at
        return {"in": found}


class PullEverything:
    servers = ()

    def run(self, order: Any, _batch: Any) -> Answers:
        rows = []
        for worker in range(order.written.workers):
            pulled = [pull.bin for pull in order.written.plan.pulls if pull.target == worker]
            rows.append((Report(worker, moves=MovesReport(pulled)), np.empty(0, CELL)))
        return Answers.of(rows, build_ms=0.0, job_ms=0.0)


def record(id_: str, workers: int = 2, **more: Any) -> bytes:
    """A record that asks for a rescale."""
    return json.dumps({"id": id_, "do": "rescale", "workers": workers, **more}).encode()


class Query:
    """One query over any number of drivers.

    Attributes:
        begins: the offsets at which each epoch began, as Spark has noted them.
        carried: commands that a driver made durable: id in the control topic and first epoch.
    """

    def __init__(self, folder: Path, name: str, topic: list[list[bytes | None]], source: Input):
        self.folder, self.name, self.topic, self.input = folder, name, topic, source
        self.begins: dict[int, dict[str, dict[int, int]]] = {}
        self.epoch, self.answers = 0, []
        self._open = ExitStack()
        self.start()

    def start(self) -> None:
        """Opens the checkpoint, as a new driver does; reading goes on where the control journal says."""
        self.close()
        self.opened = Checkpoint(self.folder, {})
        self._open.callback(self.opened.close)
        self.driver = Driver(
            Controller(START, catalog.make("megaphone-all-at-once")), self.opened, PullEverything(), files=None
        )
        self.driver.before_plan = [self._before]
        self.log = ControlLog(self.opened, ControlTopic("broker:9092", "control", self.name))
        self._open.callback(self.log.close)
        self.carrier = Carrier(self.log, self.input.find, self._answer, lambda: self.driver.ending)
        self.next = {part: self.log.pending.positions.get(part, 0) for part in range(len(self.topic))}

    def close(self) -> None:
        """Frees the checkpoint."""
        self._open.close()

    def __enter__(self) -> "Query":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, records: int) -> None:
        """Reads at most so many records of the control topic, from each partition in turn."""
        for _ in range(records):
            part = min((p for p in self.next if self.next[p] < len(self.topic[p])), key=self.next.get, default=None)
            if part is None:
                break
            at = (part, self.next[part])
            told = self.log.pending.read(self.topic[part][at[1]], at, self.driver.next_planned)
            self.answers += self.log.obey(told)
            self.answers += [one for one in told if isinstance(one, SendAnswer) and one.id]
            self.next[part] += 1
        self.log.obey(self.log.pending.passed(self.next))

    def run(self) -> None:
        """Runs the epoch that Spark would run next, with all input that is there."""
        self.begins.setdefault(self.epoch + 1, self.input.end)
        self.driver.run_epoch(None, self.epoch)
        self.epoch += 1

    def _before(self, epoch: int) -> None:
        if epoch > 0:
            self.carrier.before(epoch, self.begins[epoch])

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "stop":
            self.driver.ending = True
            return {"stopping": True}
        if request["do"] == "status":
            return {}
        if request["do"] != "rescale":
            raise UsageError(f"The request {request['do']!r} is unknown.")
        if int(request["workers"]) > BINS:
            raise UsageError("There are too few bins.")
        request.get("policy", "").strip()
        goal = np.arange(BINS, dtype=np.int32) % int(request["workers"])
        return {"id": self.driver.command("rescale", goal, "rescale").id}

    @property
    def done(self) -> list[dict[str, Any]]:
        """What the control journal says of the commands carried out, in their order."""
        carried = (one for one in self.log.pending.done.values() if one["outcome"] == "carried out")
        return sorted(carried, key=lambda one: one["number"])


def findings(
    done: Sequence[Mapping[str, Any]],
    begins: Mapping[int, Any],
    bound_of: Mapping[str, Any],
    sent: Iterable[str],
    commanded: Sequence[str],
) -> list[str]:
    """What is wrong with commands that were carried out, in words; nothing if each was so once, in an order explained.

    Args:
        done: what the control journal says of each, in the order carried out.
        begins: the offsets at which each epoch began.
        bound_of: the bound of each command with a condition, None for one that was never reached.
        sent: ids of all commands that can be carried out.
        commanded: ids of the commands that drivers have made durable, in their order.
    """
    found, ids = [], [one["id"] for one in done]
    found += [f"{id_} was carried out {commanded.count(id_)} times" for id_ in ids if commanded.count(id_) != 1]
    if list(dict.fromkeys(commanded)) != ids:
        found.append(f"the log has the order {ids}, the drivers had {commanded}")
    last = max(begins)
    for id_ in sorted(set(sent) - set(ids)):
        if id_ not in bound_of or _reaches(begins[last], bound_of[id_]):
            found.append(f"{id_} was not carried out")
    found += [f"{id_} was carried out and not sent" for id_ in sorted(set(ids) - set(sent))]
    for one in done:
        first, latest = _epochs(one, begins, bound_of)
        if not first <= one["epoch"] <= latest:
            found.append(f"{one['id']} holds from epoch {one['epoch']} and not from {first} to {latest}")
    for before, after in pairwise(done):
        turns = [(one["epoch"], one["generation"]) for one in (before, after)]
        if turns[0] > turns[1] or (turns[0] == turns[1] and _behind(before, after, bound_of)):
            found.append(f"{after['id']} was carried out behind {before['id']}")
    return found


def _epochs(one: Mapping[str, Any], begins: Mapping[int, Any], bound_of: Mapping[str, Any]) -> tuple[int, int]:
    """The first epoch that reaches a command's bound, and the first that has also read the record of its time.

    A record that comes while an epoch begins may or may not be there when the epoch's commands are looked for.
    """
    first, last = max(one["since"], 1), max(begins)
    if one["id"] not in bound_of:
        return first, first
    bound = bound_of[one["id"]]
    while first < last and not _reaches(begins[first], bound):
        first += 1
    latest = first
    behind = bound and {t: {p: at + 1 for p, at in parts.items()} for t, parts in bound.items()}
    while one["time_ms"] is not None and latest < last and not _reaches(begins[latest + 1], behind):
        latest += 1
    return first, latest


def _reaches(begin: Any, bound: Any) -> bool:
    return bound is not None and all(begin[t][p] >= at for t, parts in bound.items() for p, at in parts.items())


def _behind(one: Mapping[str, Any], other: Mapping[str, Any], bound_of: Mapping[str, Any]) -> bool:
    """Whether one command has to come behind another that the same epoch reaches."""
    mine, its = bound_of.get(one["id"]), bound_of.get(other["id"])
    if mine is None or its is None:
        return (
            (mine is None, one["at"]) > (its is None, other["at"]) if (mine is None) == (its is None) else mine is None
        )
    pairs = [(at, its.get(t, {}).get(p, 0)) for t, parts in mine.items() for p, at in parts.items()]
    pairs += [(mine.get(t, {}).get(p, 0), at) for t, parts in its.items() for p, at in parts.items()]
    if all(a == b for a, b in pairs):
        return ((one["time_ms"] or 0), one["at"]) > ((other["time_ms"] or 0), other["at"])
    return all(a >= b for a, b in pairs)
