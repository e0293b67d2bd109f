"""What workers have committed, commit by commit, and the answer recomputed from it under the versions that they ran."""

import contextlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
from chaos.recipes import Broken, Recipes
from chaos.violation import require

from impls.store.records import ROW
from impls.store.tables import SHAPE
from impls.worker.applying import Applying
from impls.worker.environment import Environment
from realtime.places import Place
from realtime.workload import Workload


@dataclass(frozen=True)
class Commit:
    """A commit of a worker.

    Attributes:
        worker, epoch, commit: whose, and under what numbers its results are sent; number: which grows with each.
        order: the epoch whose order the worker obeyed.
        refused: the version that it ran without, 0 for none.
        shapes: by bin, the shape that its state has taken, as the commit has it.
        records: (place, bin, version) of the rows applied.
    """

    worker: int
    epoch: int
    commit: int
    number: int
    order: int
    refused: int
    shapes: dict[int, int]
    records: list[tuple[Place, int, int]]


class Commits:
    """The commits that hold, in order: one that was lost with its environment gives way to the one in its place.

    Of one query, whose state is in a folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self.held: list[Commit] = []
        self._work: Any = None

    def _add(self, commit: Commit) -> None:
        self.held = [c for c in self.held if c.worker != commit.worker or c.number < commit.number]
        self.held.append(commit)

    @contextlib.contextmanager
    def seen(self) -> Iterator[None]:
        """Takes in what workers commit while the context lasts."""
        run, report, commit = Applying.run, Applying._report_versions, Environment.commit

        def ran(work: Any, *given: Any, **more: Any) -> None:
            work.required = None
            run(work, *given, **more)
            self._work = work

        def reported(work: Any, running: Any) -> None:
            work.required = running.required
            report(work, running)

        def committed(env: Any, txn: Any, frame: Any, *given: Any, **more: Any) -> bytes:
            before, work, self._work = env.state, self._work, None
            raw = commit(env, txn, frame, *given, **more)
            if env.task.spec.state_dir.startswith(self._folder):
                self._add(_commit_of(env.task, before, frame, work))
            return raw

        with (
            mock.patch.object(Applying, "run", ran),
            mock.patch.object(Applying, "_report_versions", reported),
            mock.patch.object(Environment, "commit", committed),
        ):
            yield

    def fold(self, load: Workload, recipes: Recipes, plans: dict[int, Any], *, timed: bool) -> "Folded":
        """Returns what must have come of the commits; requires that each record ran once, under a version it could."""
        folded = Folded(load, recipes, plans, timed=timed)
        for commit in self.held:
            try:
                folded.take(commit)
            except Broken as error:
                require(False, "version", f"worker {commit.worker} commits in epoch {commit.epoch} what fails: {error}")
        return folded


def _commit_of(task: Any, before: Any, frame: Any, work: Any) -> Commit:
    shapes: dict[int, int] = {}
    if work is not None:
        for name, value in zip(work.changes.names, work.changes.values, strict=True):
            if name[:1] == SHAPE:
                shapes[int.from_bytes(name[1:3], "big")] = int.from_bytes(value[:-4], "big")
    records: list[tuple[Place, int, int]] = []
    if work is not None and work.records is not None:
        table = work.records if ROW in work.records.column_names else work.records.append_column(ROW, _zeros(work))
        columns = (table.column(name).to_pylist() for name in ("partition", "offset", ROW, "bin"))
        versions = np.zeros(task.spec.bins, np.int32) if work.required is None else work.required
        records = sorted(((p, at, row), bin_, int(versions[bin_])) for p, at, row, bin_ in zip(*columns, strict=True))
    refused = task.refused[0] if task.refused else 0
    return Commit(
        task.worker, frame.epoch, before.commits, before.number, task.epoch, refused, shapes, records
    )  # fmt: skip


def _zeros(work: Any) -> pa.Array:
    return pa.array(np.zeros(len(work.records), np.int64))


class Folded:
    """What must have come of commits.

    Attributes:
        state: by key; shape: by bin.
        results: by (worker, epoch, commit), the payload of each key.
    """

    def __init__(self, load: Workload, recipes: Recipes, plans: dict[int, Any], *, timed: bool):
        self._load, self._recipes, self._plans, self._timed = load, recipes, plans, timed
        self._state: dict[int, dict[int, Any]] = defaultdict(dict)
        for key, value in load.begun.items():
            self._state[load.bin_of(key)][key] = value
        self.shape: dict[int, int] = defaultdict(int)
        self.results: dict[tuple[int, int, int], dict[int, bytes]] = {}
        self._places = self._places_of(load)

    @staticmethod
    def _places_of(load: Workload) -> dict[tuple[int, int], list[int]]:
        """Returns by (bin, partition) the indices of its rows in the log, last first."""
        found: dict[tuple[int, int], list[int]] = defaultdict(list)
        for partition, log in enumerate(load.log):
            for offset in range(len(log) - 1, -1, -1):
                if load.applies(partition, offset):
                    found[log[offset][1], partition].append(offset)
        return found

    @property
    def state(self) -> dict[int, Any]:
        """By key, its state."""
        return {key: value for states in self._state.values() for key, value in states.items()}

    def take(self, commit: Commit) -> None:
        """Takes in the next commit."""
        known = self._recipes.begun(self._required(commit.order))
        for bin_, shape in commit.shapes.items():
            if not self._timed:
                self._state[bin_] = known.turned(self._state[bin_], self.shape[bin_], shape)
            self.shape[bin_] = shape
        results: dict[int, bytes | None] = {}
        rows = sorted((*self._load.places.find(place), bin_, version) for place, bin_, version in commit.records)
        for partition, offset, bin_, version in rows:
            left = self._places[bin_, partition]
            due = left.pop() if left else None
            require(due == offset, "once", f"row {offset} of partition {partition} is applied in place of {due}")
            self._check_version(commit, bin_, version)
            if not self._timed:
                self._applied(bin_, version, self._load.log[partition][offset], results)
        sent = {key: payload for key, payload in results.items() if payload is not None}
        self.results[commit.worker, commit.epoch, commit.commit] = sent

    def _required(self, epoch: int) -> set[int]:
        """Returns the versions that bins have run under until the end of an epoch."""
        return {int(number) for at, plan in self._plans.items() if at <= epoch for number in np.unique(plan)}

    def _applied(self, bin_: int, version: int, record: Any, results: dict[int, bytes | None]) -> None:
        key, _, columns = record
        if self._recipes[version].keeps(key):
            state = self._state[bin_]
            chained = self._load.chained
            after, results[key] = self._recipes[version].fold(state.pop(key, None), columns["value"], chained=chained)
            if after is not None:
                state[key] = after

    def _check_version(self, commit: Commit, bin_: int, version: int) -> None:
        """The version is the one that the plan names, or its parent at a worker that has refused it."""
        planned = self._plans.get(commit.order)
        wanted = 0 if planned is None else int(planned[bin_])
        refused = self._recipes[commit.refused] if commit.refused else None
        if refused is not None and wanted == refused.number:
            wanted = self._recipes.without(refused.number, self.shape[bin_])
        kept = self._recipes[version].may_keep and self.shape[bin_] == version == self._recipes.shape_of(version)
        what = f"a record of bin {bin_} runs under version {version}, not {wanted}, in epoch {commit.epoch}"
        require(version == wanted or kept, "version", what)
        shape = self._recipes.shape_of(version)
        require(shape == self.shape[bin_], "shapes", f"{what}: its state has the shape {self.shape[bin_]}")
