"""The parameters of an experiment: every one with its default, unit, bounds and help, and nothing that is slow to load.

The options of `./inv bench` and of the suites, their help, the checks of single values, and the schema of a result's
experiment are all made from these fields.
"""

import os
from dataclasses import asdict, dataclass
from typing import Any, Self

from generators.clock import ARRIVALS_MS, ARRIVALS_MS_MAX
from harness.lab.hosts.settings import HOSTS_MOST
from harness.options import declared as of
from harness.options.declared import Option, declare, options_of
from impls.spark.realtime.batch import BATCH

DEFAULT_MECHANISMS = ("none", "runtime-restart", "megaphone-all-at-once", "megaphone-fluid", "megaphone-batched")
MICRO_BATCH, REAL_TIME = MODES = ("micro-batch", "real-time")
_WHAT, _LOAD, _CLUSTER, _OUTPUT = "What to run", "Load", "Cluster", "Output"


@dataclass(frozen=True)
class Parameters:
    """What distinguishes one experiment from another; what each field means is in its declaration."""

    # fmt: off
    mechanisms: tuple[str, ...] = declare(
        DEFAULT_MECHANISMS, "mechanisms to compare, separated by commas; ./inv mechanisms lists them", _WHAT, of.NAMES,
        name="mechanism")
    modes: tuple[str, ...] = declare(
        (MICRO_BATCH,), "how Spark runs the query: micro-batch or real-time; both, separated by a comma, are compared",
        _WHAT, of.NAMES, name="mode", subject="The mode", choices=MODES)
    options: dict[str, Any] = declare(  # noqa: RUF009 - which makes a field
        {}, "options of the mechanisms that know them, NAME=VALUE,NAME=VALUE; ./inv mechanisms lists them", _WHAT,
        of.PAIRS, name="option", shown="each mechanism's own")
    workload: str = declare(
        "dense", "what is counted: dense (an array per bin), hash (an entry per key) or nexmark (its queries)", _WHAT,
        subject="The workload", choices=("dense", "hash", "nexmark"))
    query: str = declare(
        "", "nexmark: q0 to q22; several, separated by commas, are an experiment each", _WHAT, shown="q4")
    value_bytes: int = declare(
        0, "hash: bytes kept per key besides the count", _WHAT, of.INTEGER, unit="bytes",
        subject="The bytes of value per key", least=0, most=1 << 20)
    cost_us: float = declare(
        0.0, "what each record costs its worker", _WHAT, of.REAL, unit="µs",
        subject="The cost of a record", least=0, most=1_000_000)
    cost: str = declare(
        "wait", "how each record costs that: wait (a remote call) or compute", _WHAT,
        subject="The cost of a record", choices=("wait", "compute"))
    migration: str = declare(
        "pattern", "pattern (Megaphone's: a quarter of the state moves, and back), rescale, there-and-back (a rescale, "
        "and its return), rebalance (by the policy), "
        "autoscale:policy=ds2,min=1,max=8 with options of both, none, or a plan file", _WHAT,
        shown="pattern, or rescale where --workers says FROM:TO")
    fault: str | None = declare(
        None, "run every mechanism once more with a fault in its migration: victim@migrating or victim@point, in "
        "nexmark's queries of two stages also victim@point@second; several by commas, each in a run of its own",
        _WHAT, shown="no fault")
    rounds: int = declare(
        1, "repetitions, interleaved", _WHAT, of.COUNT, subject="The number of rounds", least=1)
    seed: int = declare(
        1, "seed of the keys and of the order of runs", _WHAT, of.INTEGER,
        subject="The seed", least=0, most=(1 << 63) - 1)

    keys: int = declare(
        4_000_000, "number of keys, such as 4000000, 4e6 or 4M", _LOAD, of.COUNT, subject="The number of keys", least=1)
    latency_of: str = declare(
        "records", "nexmark's q5 and q8: what latencies are of, records or results", _LOAD,
        subject="What latencies are of", choices=("records", "results"), own=False)
    distribution: str = declare(
        "uniform", "uniform, zipf, or drift:keys=N,share=S,speed=V, a hot set of N keys that moves", _LOAD)
    exponent: float = declare(
        1.0, "exponent of the Zipf law", _LOAD, of.REAL, subject="The Zipf exponent", least=0, most=10)
    rate: int = declare(
        10_000, "base rate of the load", _LOAD, of.COUNT, unit="records/s", subject="The rate", least=1)
    rate_shape: str = declare(
        "constant", "constant, step:10=5,20=50, sine:period=30, spike:at=10, csv:PATH or csv-steps:PATH", _LOAD)
    profile: str = declare(
        "default", "nexmark: default (100 auctions in flight), large-state:horizon=1200 or large-state:auctions=N",
        _LOAD)
    out_of_order: str = declare(
        "", "nexmark: events out of order, group=N,probability=P,delay=SECONDS", _LOAD, shown="in order")
    duration_s: float = declare(
        36.0, "length of the measured load; it goes on up to three times as long until every migration is crossed by "
        "records and steady state is back", _LOAD, of.REAL, name="duration", unit="seconds",
        subject="The duration of the load", least=3)
    lead_in_s: float = declare(
        5.0, "length of the load before it", _LOAD, of.REAL, name="lead_in", unit="seconds",
        subject="The lead-in of the load", least=0)

    arrivals_ms: float = declare(
        ARRIVALS_MS, "how far apart records arrive: the generator sends all that are due, and waits so long", _LOAD,
        of.REAL, name="arrivals", unit="ms", subject="The time between arrivals", least=1, most=ARRIVALS_MS_MAX)

    workers: int = declare(
        4, "number of workers, or FROM:TO for a rescale", _CLUSTER, of.WORKERS,
        subject="The number of workers", least=1)
    workers_goal: int = declare(
        4, "number of workers after the rescale", _CLUSTER, of.COUNT, subject="The number of workers", least=1,
        own=False)
    bins: int = declare(
        256, "number of bins, a power of two", _CLUSTER, of.POWER,
        subject="The number of bins", least=2, most=1 << 14)
    policy: str = declare(
        "minimal_move", "where bins go: minimal_move, contiguous, consistent_hashing:virtual_nodes=64 or "
        "load_aware:imbalance=0.05", _CLUSTER)
    durability: str = declare(
        "process", "what the state survives: none, the end of a process, or of the host (flushed to disk)",
        _CLUSTER, subject="The durability", choices=("none", "process", "host"))
    trigger: str = declare(
        "0 seconds", "epochs: how long after the begin of one the next begins, such as '1 second'; 0 seconds: at once "
        "behind it", _CLUSTER)
    max_offsets_per_trigger: int | None = declare(
        None, "Spark's limit on records per epoch", _CLUSTER, of.COUNT, unit="records", shown="no limit",
        subject="The limit on records per epoch", least=1)
    batch: str = declare(
        BATCH, "real time: how long a batch of Spark's lasts, such as '60 seconds' or '5 minutes'", _CLUSTER)
    slots: int | None = declare(
        None, "real time: most workers while the query runs; more of them restart it", _CLUSTER, of.COUNT,
        shown="as many as the migration needs", subject="The number of slots", least=1)
    input_partitions: int = declare(
        2, "partitions of the input topic", _CLUSTER, of.COUNT, subject="The number of input partitions", least=1)
    result_partitions: int = declare(
        4, "partitions of the result topic", _CLUSTER, of.COUNT, subject="The number of result partitions", least=1)
    bootstrap: str | None = declare(
        None, "an existing broker, HOST:PORT", _CLUSTER, name="bootstrap_servers", shown="an embedded one")
    master: str | None = declare(None, "Spark master", _CLUSTER, shown="local mode")
    archive: str = declare(
        "auto", "environment for the executors of a cluster: a file or URI of what ./inv cluster.pack makes, none, or "
        "auto: packed if they lack it", _CLUSTER)
    cluster: int | None = declare(
        None, "hosts of a Spark cluster on this machine, started for each run; see ./inv cluster.start", _CLUSTER,
        of.COUNT, shown="no cluster", subject="The number of hosts", least=1, most=HOSTS_MOST)
    netem: str = declare(
        "", "what the hosts' network does to the packets that each sends, such as 'delay 2ms loss 0.1%' (as root)",
        _CLUSTER, shown="nothing")
    tls: str = declare(
        "none", "of bins between hosts: none, auto (a certificate is made), or a PEM file of certificate and key",
        _CLUSTER)
    state_dir: str | None = declare(
        None, "folder for the workers' state", _CLUSTER, of.FOLDER, shown="in the result folder")
    log_dir: str | None = declare(
        None, "folder or URI (s3://..., credentials in the environment) of changelog and snapshots, which all hosts of "
        "a cluster see", _CLUSTER, of.FOLDER, shown="in the result folder")

    name: str = declare("key-count", "name of the experiment, with which the result folder's name begins", _OUTPUT)
    # fmt: on

    def to_json(self) -> dict[str, Any]:
        """Returns all parameters."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Reads what `to_json` wrote."""
        values: dict[str, Any] = {name: tuple(data[name]) for name in _TUPLES if name in data}
        return cls(**{**data, **values})


PARAMETERS = options_of(Parameters)
_TUPLES = {option.field for option in PARAMETERS if option.kind == of.NAMES}
_AS_CORES = min(4, max(2, os.cpu_count() or 1))
# What `./inv bench` compares when nothing is said of what to compare: Spark's own restart and a live migration, each in
# epochs and in real time, all counting in an entry per key. There are as many workers as the cores carry, and the
# lead-in is long enough for queries in real time, whose first seconds are slow, to be warm when the load is measured.
STANDARD: dict[str, Any] = {
    "mechanisms": ("native-repartition", "native-real-time", "megaphone-batched"),
    "modes": MODES,
    "workload": "hash",
    "keys": 1_000_000,
    "workers": _AS_CORES,
    "workers_goal": _AS_CORES,
    "duration_s": 24.0,
    "lead_in_s": 10.0,
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
PROBED = {"rate": "as a probe of this machine says, at most 10k"}  # of the standard comparison, for its help


def running(quick: str, force: str = "run although the same result is there already") -> tuple[Option, ...]:
    """Returns the options that every suite has; `quick` and `force` say what they do in it."""
    return (
        Option("quick", quick, of.FLAG, _WHAT),
        Option("output", "folder for results", of.FOLDER, _OUTPUT, shown="results/"),
        Option("force", force, of.FLAG, _OUTPUT),
    )


BENCH = (
    *(option for option in PARAMETERS if option.own),
    Option("all", "every mechanism there is, except the baselines on Spark's own state", of.FLAG, _WHAT),
    *running("none and two mechanisms on a small load, under 90 s"),
    Option("resume", "go on with the last unfinished result of the same experiment", of.FLAG, _OUTPUT),
    Option(
        "metrics_port", "answer Prometheus on this port of 127.0.0.1 while runs go on", of.TEXT, _OUTPUT,
        shown="no endpoint",
    ),
)  # fmt: skip
