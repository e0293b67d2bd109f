"""Run folders with known latencies, written as a real run writes them, without Spark or Kafka."""

import base64
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from harness.files import JsonLines, write_json
from harness.measure.cells import encode_cells
from harness.results.entry import summarise_run
from harness.results.summary import write_result
from harness.suites.bench import prepare_runs
from harness.suites.sweep import Grid
from impls.worker.cells import make_cells

MECHANISMS = ("none", "runtime-restart", "megaphone-all-at-once", "megaphone-fluid", "megaphone-batched")
BEGIN_US = 1_767_225_600_123_456
BINS, WORKERS, BIN_BYTES = 64, 4, 65_536
MOVED_BINS = BINS // 4
HOSTS = ("10.0.0.11", "10.0.0.12")
SEND_LAG_US = 4_000
_SPIKE_MS = {"none": 0, "runtime-restart": 2_500, "megaphone-all-at-once": 900, "megaphone-fluid": 20}
_BINS_PER_EPOCH = {"runtime-restart": MOVED_BINS, "megaphone-all-at-once": MOVED_BINS, "megaphone-fluid": 1, "none": 0}
_MIB = 1 << 20


@dataclass
class Clockwork:
    """A run whose only clock is `now_us`; each epoch takes the records that were due when it began."""

    folder: Path
    mechanism: str
    spike_ms: float
    rng: np.random.Generator
    scheduled: np.ndarray
    commands: list[int]
    now_us: int
    real_time: bool = False
    epoch: int = 0
    taken: int = 0
    left: int = 0
    migration: int = -1
    events: list[dict[str, Any]] = field(default_factory=list)
    epochs: list[dict[str, Any]] = field(default_factory=list)
    cells: list[dict[str, Any]] = field(default_factory=list)
    plans: list[dict[str, Any]] = field(default_factory=list)

    def run(self) -> None:
        self.event("query_start", generation=0)
        self.event("clocks", offsets={HOSTS[0]: [0.02, 0.05], HOSTS[1]: [-0.4, 0.1]})
        self.event("load_begin")
        while self.taken < len(self.scheduled) or self.left:
            self.one_epoch()
        self.event("load_end")
        self.event("drained")

    def event(self, kind: str, **fields: Any) -> None:
        self.events.append({"at_us": self.now_us, "kind": kind, **fields})

    def one_epoch(self) -> None:
        ms = {"between": 4.0 + self.rng.random(), "plan": 1.0, "build": 6.0, "job": 0.0, "observe": 2.0}
        starting = self.maybe_command()
        if starting and self.mechanism == "runtime-restart":
            ms["between"] += self.restart()
        self.now_us += int(ms["between"] * 1000)
        begin_us = self.now_us
        bins = min(self.left, _BINS_PER_EPOCH.get(self.mechanism, 4))
        pull_ms = self.spike_ms * (0.2 if self.mechanism == "runtime-restart" else 1.0) if bins else 0.0
        cold = 1 + 1.5 * np.exp(-max(0, begin_us - self.scheduled[0]) / 600_000)
        ms["job"] = float((15 if self.real_time else 190) * cold * self.rng.normal(1, 0.02) + pull_ms)
        done_us = begin_us + int((ms["plan"] + ms["build"] + ms["job"]) * 1000) - 3_000
        self.now_us = done_us + 3_000 + int(ms["observe"] * 1000)
        records = self.take(begin_us, done_us)
        migrating = self.left > 0
        self.left -= bins
        if starting:
            self.event("migration_begin", id=f"m{self.migration}", epoch=self.epoch, bins=MOVED_BINS)
        if migrating and not self.left:
            self.event("migration_end", id=f"m{self.migration}", epoch=self.epoch)
        self.note(begin_us, records, bins, pull_ms, migrating=migrating, ms=ms)
        self.epoch += 1

    def maybe_command(self) -> bool:
        if self.mechanism == "none" or self.left or not self.commands or self.now_us < self.commands[0]:
            return False
        self.commands.pop(0)
        self.migration, self.left = self.migration + 1, MOVED_BINS
        size = MOVED_BINS * BIN_BYTES
        moves = {"bins": MOVED_BINS, "size": size, "bins_minimum": MOVED_BINS // 2, "size_minimum": size // 2}
        label = "a quarter there" if not self.migration else "and back"
        self.event("command", id=f"m{self.migration}", label=label, moves=moves)
        return True

    def restart(self) -> float:
        """Stops and starts the query, and returns how long that took in ms."""
        before = self.now_us
        self.event("query_stop")
        self.now_us += int(self.spike_ms * 800)
        self.event("query_start", generation=1)
        self.now_us = before
        return self.spike_ms * 0.8

    def take(self, begin_us: int, done_us: int) -> int:
        last = int(np.searchsorted(self.scheduled, begin_us - SEND_LAG_US, "right"))
        chosen, self.taken = self.scheduled[self.taken : last], last
        worker = self.rng.integers(0, WORKERS, len(chosen))
        moved = (self.rng.random(len(chosen)) < MOVED_BINS / BINS) & (self.left > 0)
        for number in range(WORKERS):
            mine, at = worker == number, done_us - int(self.rng.integers(0, 2_000))
            cells, _ = make_cells(chosen[mine], at, moved[mine])
            line = {"epoch": self.epoch, "worker": number, "done_us": at, "cells": encode_cells(cells)}
            self.cells.append(line)
        return len(chosen)

    def note(
        self, begin_us: int, records: int, bins: int, pull_ms: float, *, migrating: bool, ms: dict[str, float]
    ) -> None:
        inside = {"open": 0.2, "drop": 0.1, "pull": pull_ms, "apply": records / 50, "commit": 3.0, "send": 2.0}
        self.epochs.append(
            {
                "epoch": self.epoch, "begin_us": begin_us, "end_us": self.now_us, "workers": WORKERS,
                "records": records, "results": records, "queued": 0, "queue_bytes": 0, "outbox_bytes": records * 24,
                "lmdb_bytes": BINS * BIN_BYTES, "moved_bins": bins, "moved_bytes": bins * BIN_BYTES,
            "state_bytes": 1 << 20,
                "longest_pull_ms": pull_ms, "migrating": migrating, "misplaced": self.left, "negative": 0,
                "homes": [[worker, HOSTS[worker % len(HOSTS)]] for worker in range(WORKERS)], "lost": 0,
                "network": [[*HOSTS, bins * BIN_BYTES, pull_ms]] if bins else [],
                "ms": {"total": sum(ms.values()), **ms, **inside},
                **(self.in_real_time(records) if self.real_time else {}),
            }
        )  # fmt: skip
        routing = (np.arange(BINS) // (BINS // WORKERS)).astype("<u2")
        routing[:MOVED_BINS] = (routing[:MOVED_BINS] + 2 * ((self.migration + 1) % 2)) % WORKERS
        pulls = [[bin_, 0, 2] for bin_ in range(self.left, self.left + bins)]
        self.plans.append(
            {
                "epoch": self.epoch, "generation": 0, "workers": WORKERS, "migrating": migrating,
                "routing": base64.b64encode(routing.tobytes()).decode(), "pulls": pulls, "budget_bytes": None,
                "on_demand": False, "hold": [], "replicas": [], "standbys": [], "stop": None, "drops": [],
            }
        )  # fmt: skip

    def in_real_time(self, records: int) -> dict[str, Any]:
        """What the line of an epoch has besides."""
        parts = {
            "to_router": 4.0,
            "route": 0.5,
            "to_worker": 3.0,
            "wait": 1.0,
            "apply": 2.0,
            "commit": 0.5,
            "send": 1.5,
        }
        return {"turns": 3, "way_ms": parts if records else {}, "latency_ms": 14.0 if records else None}


def _memory(clockwork: Clockwork) -> list[dict[str, Any]]:
    base = {"broker": 380, "driver": 160, "jvm": 620, "generator": 55, "worker": 420, "worker_max": 110}
    out = []
    for at_us in range(int(clockwork.scheduled[0]) - 500_000, clockwork.now_us, 200_000):
        grown = {role: size * (1 + 0.1 * clockwork.rng.random()) for role, size in base.items()}
        roles = {role: {"rss": int(size * _MIB), "anon": int(size * 0.7 * _MIB)} for role, size in grown.items()}
        out.append({"at_us": at_us, "roles": roles})
    return out


def _lines(path: Path, lines: list[dict[str, Any]]) -> None:
    path.unlink(missing_ok=True)
    with JsonLines(path) as file:
        for line in lines:
            file.write(line)


def write_run(
    folder: Path,
    *,
    mechanism: str,
    seconds: float = 30,
    seed: int = 1,
    spike_ms: float | None = None,
    rate: int = 2_000,
    round_: int = 0,
    commands: tuple[float, ...] | None = None,
    verdict: str = "valid",
    lag_ms: float = 2.0,
    summarise: bool = True,
    mode: str = "micro-batch",
) -> Clockwork:
    """Writes every file of a run's folder, and with `summarise` also its logs and its entry.

    An epoch takes 203 ms, give or take a few, once warm; each epoch that moves bins takes `spike_ms` longer, and a
    restart takes four fifths of that between two epochs and one fifth in the first epoch after them. In real time a
    epoch takes 25 ms.
    """
    folder.mkdir(parents=True, exist_ok=True)
    begin_us, records = BEGIN_US + round_ * 600_000_000, int(seconds * rate)
    parameters = experiment_parameters(seconds=seconds, seed=seed, rate=rate)
    write_json(folder / "run.json", {**parameters, "mechanism": mechanism, "mode": mode, "round": round_, "number": 0})
    load = {"start_us": begin_us, "rate": rate, "records": records, "seed": seed, "keys": 100_000}
    load |= {
        "distribution": "uniform",
        "exponent": 1.0,
        "partitions": 2,
        "topic": "in",
        "lead_in_s": 2.0,
        "planned_s": seconds,
        "end_s": seconds,
    }
    write_json(folder / "load.json", load)
    at = (seconds / 3, seconds * 2 / 3) if commands is None else commands
    clockwork = Clockwork(
        folder, mechanism, _SPIKE_MS.get(mechanism, 40) if spike_ms is None else spike_ms,
        np.random.default_rng(seed), begin_us + np.arange(records) * 1_000_000 // rate,
        [begin_us + int(second * 1e6) for second in at], begin_us - 300_000, mode == "real-time",
    )  # fmt: skip
    clockwork.run()
    for name in ("events", "epochs", "cells"):
        _lines(folder / f"{name}.jsonl", getattr(clockwork, name))
    _lines(folder / "plan.jsonl", clockwork.plans)
    _lines(folder / "memory.jsonl", _memory(clockwork))
    lag = {"p50": lag_ms / 10, "p99": lag_ms / 2, "p999": lag_ms, "max": lag_ms * 1.5}
    write_json(folder / "generator.json", {"records": records, "lag_ms": lag, "elapsed_s": seconds})
    found = dict.fromkeys(("lost", "doubled", "wrong", "out_of_order"), 0) | {"lost": int(verdict == "invalid")}
    oracle = {"verdict": verdict, **found, "records": records, "results": records, "crossed": 100, "reasons": []}
    write_json(folder / "oracle.json", {**oracle, "examples": {}})
    if summarise:
        summarise_run(folder)
    (folder / "done").touch()
    return clockwork


def experiment_parameters(*, seconds: float, seed: int, rate: int, rounds: int = 1) -> dict[str, Any]:
    return {
        "name": "synthetic", "mechanisms": list(MECHANISMS), "options": {"bins_per_pair": 4}, "workload": "dense",
        "keys": 100_000, "distribution": "uniform", "exponent": 1.0, "rate": rate,
        "duration_s": seconds - 2, "lead_in_s": 2.0,
        "workers": WORKERS, "workers_goal": WORKERS, "bins": BINS, "policy": "minimal_move", "migration": "pattern",
        "seed": seed, "rounds": rounds, "max_offsets_per_trigger": None, "bootstrap": None, "state_dir": None,
        "master": None, "input_partitions": 2, "result_partitions": 4,
    }  # fmt: skip


def new_experiment(factory: Any, **options: Any) -> Path:
    """Returns a new result folder with an experiment in it; see `write_experiment` for the options."""
    folder: Path = factory.mktemp("results") / "20260101-000000-synthetic"
    folder.mkdir()
    write_experiment(folder, **options)
    return folder


def write_experiment(
    folder: Path, *, seconds: float = 30, seed: int = 1, rounds: int = 2, rate: int = 2_000
) -> dict[str, Any]:
    """Writes a result folder with all mechanisms in every round, and returns what its result.json says."""
    parameters = experiment_parameters(seconds=seconds, seed=seed, rate=rate, rounds=rounds)
    environment = {
        "commit": "0123456789abcdef0123456789abcdef01234567", "dirty": False, "seed": seed, "host": "example",
        "os": "Linux 6.1", "architecture": "x86_64", "cpu": "Example CPU", "cores": 2, "memory_bytes": 8 << 30,
        "versions": {"python": "3.11.7", "java": "17.0.15", "kafka": "4.3.0", "pyspark": "4.3.0", "numpy": "2.4.6"},
    }  # fmt: skip
    write_json(folder / "experiment.json", {**parameters, "digest": "0123456789ab", "environment": environment})
    for number in range(rounds * len(MECHANISMS)):
        round_, mechanism = number // len(MECHANISMS), MECHANISMS[number % len(MECHANISMS)]
        run = folder / "runs" / f"{number:02d}-{mechanism}-r{round_}"
        write_run(run, mechanism=mechanism, seconds=seconds, seed=seed + number, rate=rate, round_=round_)
    (folder / "done").touch()
    return write_result(folder)


def write_sweep(folder: Path, grid: Grid, *, seconds: float = 18, rate: int = 200) -> dict[str, Any]:
    """Writes a sweep's result folder; an all-at-once epoch is the longer the more keys its cell has."""
    prepare_runs(grid, grid.runs(), folder, grid.base.seed)
    for run, cell in grid.runs():
        spike_ms = cell["keys"] / 1_000 if run.mechanism == "megaphone-all-at-once" else None
        place = folder / "runs" / run.folder
        write_run(
            place, mechanism=run.mechanism, seconds=seconds, seed=run.number + 1, rate=rate, round_=run.round,
            spike_ms=spike_ms,
        )  # fmt: skip
    (folder / "done").touch()
    return write_result(folder)
