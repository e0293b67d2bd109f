"""The parameters of an experiment: every one with its default, unit, bounds and help, and nothing that is slow to load.

The options of `./inv bench` and of the suites, their help, the checks of single values, and the schema of a result's
experiment are all made from these fields.
"""

from dataclasses import asdict, dataclass
from typing import Any, Self

from harness.options.declared import (
    COUNT,
    FLAG,
    FOLDER,
    INTEGER,
    NAMES,
    PAIRS,
    POWER,
    REAL,
    TEXT,
    WORKERS,
    Option,
    declare,
    options_of,
)  # fmt: skip

__all__ = ["BENCH", "DEFAULT_MECHANISMS", "PARAMETERS", "PRESETS", "QUICK", "STANDARD", "Parameters", "running"]

DEFAULT_MECHANISMS = ("none", "runtime-restart", "megaphone-all-at-once", "megaphone-fluid", "megaphone-batched")
_WHAT, _LOAD, _CLUSTER, _OUTPUT = "What to run", "Load", "Cluster", "Output"


@dataclass(frozen=True)
class Parameters:
    """What distinguishes one experiment from another; what each field means is in its declaration."""

    mechanisms: tuple[str, ...] = declare(
        DEFAULT_MECHANISMS, "mechanisms to compare, separated by commas; ./inv mechanisms lists them", _WHAT, NAMES,
        name="mechanism",
    )  # fmt: skip
    options: dict[str, Any] = declare(  # noqa: RUF009 - which makes a field
        {}, "options of the mechanisms that know them, NAME=VALUE,NAME=VALUE; ./inv mechanisms lists them", _WHAT,
        PAIRS, name="option", shown="each mechanism's own",
    )  # fmt: skip
    workload: str = declare(
        "dense", "what is counted: dense (an array per bin), hash (an entry per key) or nexmark (its queries)", _WHAT,
        choices=("dense", "hash", "nexmark"), subject="The workload",
    )  # fmt: skip
    query: str = declare(
        "", "nexmark: q0 to q8; several, separated by commas, are an experiment each", _WHAT, shown="q4"
    )
    value_bytes: int = declare(
        0, "hash: bytes kept per key besides the count", _WHAT, INTEGER, unit="bytes", least=0, most=1 << 20,
        subject="The bytes of value per key",
    )  # fmt: skip
    cost_us: float = declare(
        0.0, "what each record costs its worker", _WHAT, REAL, unit="µs", least=0, most=1_000_000,
        subject="The cost of a record",
    )  # fmt: skip
    cost: str = declare(
        "wait", "how each record costs that: by a wait (a remote call) or by computing", _WHAT,
        choices=("wait", "compute"), subject="The cost of a record",
    )  # fmt: skip
    migration: str = declare(
        "pattern",
        "pattern (Megaphone's: a quarter of the state moves, and back), rescale, rebalance (by the policy), none, "
        "or a plan file",
        _WHAT, shown="pattern, or rescale where --workers says FROM:TO",
    )  # fmt: skip
    fault: str | None = declare(
        None, "run every mechanism a second time with a fault in its migration: victim@migrating or victim@point",
        _WHAT, shown="no fault",
    )  # fmt: skip
    rounds: int = declare(1, "repetitions, interleaved", _WHAT, COUNT, least=1, subject="The number of rounds")
    seed: int = declare(
        1, "what keys and the order of runs are drawn from", _WHAT, INTEGER, least=0, most=(1 << 63) - 1,
        subject="The seed",
    )  # fmt: skip

    keys: int = declare(
        4_000_000, "number of keys, such as 4000000, 4e6 or 4M", _LOAD, COUNT, least=1, subject="The number of keys"
    )
    distribution: str = declare(
        "uniform", "uniform, zipf, or drift:keys=N,share=S,speed=V, a hot set of N keys that moves", _LOAD
    )
    exponent: float = declare(
        1.0, "exponent of the Zipf law", _LOAD, REAL, least=0, most=10, subject="The Zipf exponent"
    )
    rate: int = declare(10_000, "base rate of the load", _LOAD, COUNT, unit="records/s", least=1, subject="The rate")
    rate_shape: str = declare(
        "constant", "constant, step:10=5,20=50, sine:period=30, spike:at=10, csv:PATH or csv-steps:PATH", _LOAD
    )
    profile: str = declare(
        "default",
        "nexmark: default (100 auctions in flight), large-state:horizon=1200 or large-state:auctions=N", _LOAD,
    )  # fmt: skip
    out_of_order: str = declare(
        "", "nexmark: events out of order, group=N,probability=P,delay=SECONDS", _LOAD, shown="in order"
    )
    duration_s: float = declare(
        36.0, "length of the measured load", _LOAD, REAL, name="duration", unit="seconds", least=3,
        subject="The duration of the load",
    )  # fmt: skip
    lead_in_s: float = declare(
        5.0, "length of the load before it", _LOAD, REAL, name="lead_in", unit="seconds", least=0,
        subject="The lead-in of the load",
    )  # fmt: skip

    workers: int = declare(
        4, "number of workers, or FROM:TO for a rescale", _CLUSTER, WORKERS, least=1, subject="The number of workers"
    )
    workers_goal: int = declare(
        4, "number of workers after the rescale", _CLUSTER, COUNT, least=1, subject="The number of workers", own=False
    )
    bins: int = declare(
        256, "number of bins, a power of two", _CLUSTER, POWER, least=2, most=1 << 14, subject="The number of bins"
    )
    policy: str = declare(
        "minimal_move",
        "where bins go: minimal_move, contiguous, consistent_hashing:virtual_nodes=64 or load_aware:imbalance=0.05",
        _CLUSTER,
    )  # fmt: skip
    durability: str = declare(
        "process", "what the state survives: nothing, the end of a process, or that of the host (flushed to disk)",
        _CLUSTER, choices=("none", "process", "host"), subject="The durability",
    )  # fmt: skip
    max_offsets_per_trigger: int | None = declare(
        None, "Spark's limit on records per epoch", _CLUSTER, COUNT, unit="records", shown="no limit", least=1,
        subject="The limit on records per epoch",
    )  # fmt: skip
    input_partitions: int = declare(
        2, "partitions of the input topic", _CLUSTER, COUNT, least=1, subject="The number of input partitions"
    )
    result_partitions: int = declare(
        4, "partitions of the result topic", _CLUSTER, COUNT, least=1, subject="The number of result partitions"
    )
    bootstrap: str | None = declare(
        None, "an existing broker, HOST:PORT", _CLUSTER, name="bootstrap_servers", shown="an embedded one"
    )
    master: str | None = declare(None, "Spark master", _CLUSTER, shown="local mode")
    state_dir: str | None = declare(
        None, "folder for the workers' state", _CLUSTER, FOLDER, shown="in the result folder"
    )

    name: str = declare("key-count", "name of the experiment, with which the result folder's name begins", _OUTPUT)

    def to_json(self) -> dict[str, Any]:
        """Returns all parameters."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Reads what `to_json` wrote."""
        return cls(**{**data, "mechanisms": tuple(data["mechanisms"])})


PARAMETERS = options_of(Parameters)
# What `./inv bench` compares when nothing is said of what to compare: all counting in an entry per key, as Spark does.
STANDARD: dict[str, Any] = {
    "mechanisms": ("none", "native-repartition", "runtime-restart", "megaphone-all-at-once", "megaphone-batched"),
    "workload": "hash",
    "keys": 1_000_000,
    "duration_s": 30.0,
    "name": "hash-count",
}
QUICK: dict[str, Any] = {
    "mechanisms": ("none", "megaphone-all-at-once", "megaphone-batched"),
    "keys": 400_000,
    "duration_s": 7.5,
    "lead_in_s": 3.0,
    "bins": 64,
    "name": "quick",
}
PRESETS = {"standard": STANDARD, "--quick": QUICK}


def running(quick: str, force: str = "run although the same result is there already") -> tuple[Option, ...]:
    """Returns the options that every suite has; `quick` and `force` say what they do in it."""
    return (
        Option("quick", quick, FLAG, _WHAT),
        Option("output", "folder for results", FOLDER, _OUTPUT, shown="results/"),
        Option("force", force, FLAG, _OUTPUT),
    )


BENCH = (
    *(option for option in PARAMETERS if option.own),
    Option("all", "every mechanism there is, except the baselines on Spark's own state", FLAG, _WHAT),
    *running("none and two mechanisms on a small load, under 90 s"),
    Option("resume", "go on with the last unfinished result of the same experiment", FLAG, _OUTPUT),
    Option(
        "metrics_port", "answer Prometheus on this port of 127.0.0.1 while runs go on", TEXT, _OUTPUT,
        shown="no endpoint",
    ),
)  # fmt: skip
