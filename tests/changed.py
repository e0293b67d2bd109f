"""A query whose pipeline changes, without Spark: real driver, journals, workers and files, in this process."""

import json
import shutil
from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
from inprocess import InProcessExecutor
from memory import RESULTS

from impls import catalog
from impls.driver.checkpoint import Checkpoint
from impls.driver.driver import Driver
from impls.driver.pipeline import Changeable, PipelineChanges
from impls.durability.files import Files
from impls.operators import StatefulMap
from impls.operators.pipeline import pipeline_of
from impls.protocol.controller import Controller
from impls.spark.shipping import pickled
from impls.store.environment import store_path
from impls.store.hashing import bin_of_hash, hash_bytes
from impls.worker.output import Output
from impls.worker.query import QuerySpec

BINS, KEYS, WORKERS = 16, 60, 2
PLACE = ("bin", "partition", "offset", "time", "key")


class Tally(StatefulMap):
    """Counts records and adds up their values; results name the version."""

    columns = ("value",)

    def __init__(self, name="first", bad=()):
        self.name, self.bad = name, bad

    def update(self, _key, record, state):
        if record["value"] in self.bad:
            raise ValueError(f"value {record['value']} is bad")
        state = (state or 0) + record["value"]
        return state, [self.name, state]


class Fields(Tally):
    """The same with a state of two fields."""

    def update(self, key, record, state):
        state = state or {"sum": 0, "records": 0}
        after, _ = super().update(key, record, state["sum"])
        state = {"sum": after, "records": state["records"] + 1}
        return state, [self.name, after]


def to_fields(value):
    return {"sum": value, "records": 0}


def from_fields(value):
    return value["sum"]


class Sink(Output):
    """Takes results in memory."""

    def send(self, results, *, worker, epoch, first=0, **_):
        rows = zip(results.bins.tolist(), results.keys, results.payloads, strict=True)
        RESULTS[self.topic] += [(worker, epoch, first + i, key, value) for i, (_, key, value) in enumerate(rows)]


class ChangedQuery(Changeable):
    """epoch() after epoch of random records; restart() as after a crash; check() compares with the truth."""

    def __init__(self, folder, operator=None, *, steps=(), mechanism="megaphone-fluid", seed=1, on_error="fail"):
        super().__init__()
        self.on_error, self.refused = on_error, 0
        self.folder, self.mechanism, self.random = folder, mechanism, np.random.default_rng(seed)
        self.first = pipeline_of(steps, operator or Tally())
        self.epochs, self.offset, self.history, self.events, self.opened = 0, 0, [], [], None
        self.restart()

    def restart(self):
        if self.opened is not None:
            self.opened.close()
        self.opened = Checkpoint(self.folder / "checkpoint", {}, operator=self.first)
        files = Files(str(self.opened.own))
        sink = Sink("", str(self.folder), 1)
        spec = QuerySpec(self.opened.query, BINS, self.first, sink, str(self.folder / "state"), files)
        spec = replace(spec, on_error=self.on_error)
        initial = (np.arange(BINS) % WORKERS).astype(np.int32)
        self.driver = Driver(
            Controller(initial, catalog.make(self.mechanism)), self.opened, InProcessExecutor(spec), files=files,
            on_epoch=self._observe,
        )  # fmt: skip
        self.changes = PipelineChanges(self.driver, self.first, pickled, (*PLACE, *self.first.columns))

    def _observe(self, record):
        self.events.extend(record.events)
        self.refused += sum(report.refused for report in record.reports)

    def stop(self):
        self.opened.close()
        RESULTS.pop(str(self.folder), None)

    def lose(self, worker):
        shutil.rmtree(store_path(self.folder / "state", worker), ignore_errors=True)

    def rescale(self, workers):
        goal = (np.arange(BINS) % workers).astype(np.int32)
        self.driver.command("rescale", goal, f"rescale to {workers}")

    def epoch(self, records=80, values=10, pairs=None):
        """Runs an epoch on random records, or on those of `pairs`: a key's number and a value each."""
        keys = [f"key {n}".encode() for n in self.random.integers(0, KEYS, records).tolist()]
        given = self.random.integers(0, values, records).tolist()
        if pairs is not None:
            keys, given, records = [f"key {n}".encode() for n, _ in pairs], [value for _, value in pairs], len(pairs)
        bins = [int(bin_of_hash(np.array([hash_bytes(key)], np.uint64), BINS)[0]) for key in keys]
        offsets = np.arange(self.offset, self.offset + records)
        self.offset += records
        columns = {
            "bin": pa.array(bins, pa.int32()), "partition": pa.array([0] * records, pa.int32()),
            "offset": pa.array(offsets, pa.int64()), "time": pa.array([None] * records, pa.int64()),
            "key": pa.array(keys, pa.binary()), "value": pa.array(given, pa.int64()),
        }  # fmt: skip
        self.driver.run_epoch(pa.table(columns), self.epochs)
        self.history.append(list(zip(bins, keys, given, strict=True)))
        self.epochs += 1

    def run_until(self, id_, *, most=60):
        for _ in range(most):
            if self.change(id_)["state"] in {"done", "refused"}:
                return self.change(id_)
            self.epoch()
        raise AssertionError(f"{self.change(id_)} after {most} epochs")

    @property
    def required(self):
        """The version of each bin in each epoch, from the plan log."""
        return {entry["epoch"]: entry for entry in self.opened.read("plan")}

    def rows(self):
        """The last result of each key and epoch: (epoch, key) -> what its JSON says; a repeat must be equal."""
        found = {}
        for _, epoch, _, key, value in RESULTS[str(self.folder)]:
            assert found.setdefault((epoch, key), value) == value
        return {place: json.loads(value) for place, value in found.items()}

    def names(self):
        """The names of versions that results of each bin carried, in order of epochs."""
        seen = {}
        for (_, key), (name, _) in sorted(self.rows().items()):
            bin_ = int(bin_of_hash(np.array([hash_bytes(key)], np.uint64), BINS)[0])
            if seen.setdefault(bin_, [name])[-1] != name:
                seen[bin_].append(name)
        return seen

    def check(self, counted=lambda _epoch, _bin, value: value):
        """Compares every result with the sums of what came; `counted` says what a record adds."""
        sums, expected = Counter(), {}
        for epoch, records in enumerate(self.history):
            for bin_, key, value in records:
                sums[key] += counted(epoch, bin_, value)
                expected[epoch, key] = sums[key]
        found = {place: value for place, (_, value) in self.rows().items()}
        assert found == expected


def some(epochs, query):
    for _ in range(epochs):
        query.epoch()
