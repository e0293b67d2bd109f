"""The options of every suite: an experiment's own, where a suite has them, and its few others."""

from dataclasses import replace
from typing import Any

from harness.experiment.parameters import MICRO_BATCH, MODES, PARAMETERS, REAL_TIME, running
from harness.lab.hosts.settings import HOSTS_MOST
from harness.options.declared import BYTES, COUNT, FLAG, FOLDER, INTEGER, REAL, TEXT, WORKERS, Option
from harness.suites.perf import part_names

# fmt: off

AXES = ("keys", "bins", "rate", "skew", "policy")
SWEEP_QUICK: dict[str, Any] = {"duration_s": 7.5, "lead_in_s": 3.0}
NEXMARK_QUICK: dict[str, Any] = {"rate": 2_000, "duration_s": 18.0, "lead_in_s": 3.0, "bins": 64}
NEXMARK_S = 14.0
# A session ends 10 s behind the last bid of a bidder, who bids for 5 s, or for 25 s at --quick's rate.
NEXMARK_Q11_S = {False: 24.0, True: 45.0}
_WHAT, _LOAD, _CLUSTER = "What to run", "Load", "Cluster"
_SEVERAL: dict[str, Any] = {"kind": TEXT, "least": None, "most": None}  # text that a sweep takes apart
_MODE = Option("mode", "how Spark runs the queries: micro-batch or real-time", default=MICRO_BATCH, choices=MODES,
               subject="The mode")
_KNOWN = {option.name: option for option in PARAMETERS}


def _of(name: str, shown: str = "", text: str = "", **more: Any) -> Option:
    """Returns an experiment's option with what a suite changes of it."""
    known = _KNOWN[name]
    return replace(known, shown=shown or known.shown, help=text or known.help, **more)


def _mechanism(shown: str, **more: Any) -> Option:
    return _of("mechanism", shown, "mechanisms, separated by commas", **more)


SWEEP = (
    Option("preset", "bins, domain, constant-bytes-per-bin, load or skew: a sweep of the literature", TEXT, _WHAT,
           shown="a free grid"),
    _mechanism("the preset's, or none, megaphone-all-at-once, megaphone-batched"),
    *map(_of, ("mode", "option", "workload", "cost_us", "cost", "migration", "rounds", "seed")),
    _of("keys", "the preset's, or 4M", "numbers of keys, separated by commas", **_SEVERAL),
    _of("rate", "the preset's, or 10k records/s", "rates, separated by commas", **_SEVERAL),
    Option("skew", "exponents of the Zipf law, separated by commas, 0 for uniform keys", TEXT, _LOAD,
           shown="the preset's, or 0"),
    *map(_of, ("duration", "workers", "cluster", "netem", "batch", "slots")),
    _of("bins", "the preset's, or 256", "numbers of bins, separated by commas", **_SEVERAL),
    _of("policy", "", "placement policies, separated by commas; with options of their own, by semicolons"),
    *running("few small cells, a few minutes", "measure anew although the same result is there, or is half done"),
    _of("name", "sweep-PRESET, or sweep-grid"),
)
NEXMARK_GROUPS = {
    "stateless": ("q0", "q1", "q2", "q10", "q13", "q14", "q21", "q22"), "joins": ("q3", "q8", "q20"),
    "closings": ("q4", "q6", "q9"), "windows": ("q5", "q7", "q15", "q16", "q17", "q18", "q19"),
    "bidders": ("q11", "q12"),
}
NEXMARK = (
    _of("query", "q0 to q22", "queries, separated by commas"),
    Option("group", f"groups of queries, separated by commas: {', '.join(NEXMARK_GROUPS)}", TEXT, _WHAT, shown="all"),
    _mechanism("megaphone-batched, and native-repartition where Spark can"),
    *map(_of, ("mode", "fault", "profile", "rate")), _of("seed", "", "seed of the events and of the order of runs"),
    _of("duration", default=NEXMARK_S),
    _of("workers", "2:4", "FROM:TO of the rescale, or N for Megaphone's pattern"),
    *map(_of, ("bins", "cluster", "netem", "batch", "slots")),
    *running("a small load, about 6 minutes for all queries and one mechanism"),
)
AUTOSCALE_QUICK: dict[str, Any] = {
    "load": "step,spike", "policy": "ds2", "mechanism": "megaphone-batched,runtime-restart", "duration": 30.0,
}
AUTOSCALE = (
    Option("load", "step (5x), surge (50x), sine, spike, drift (of hot keys), steady; several by commas", TEXT, _WHAT,
           "step,surge,sine,spike,drift", field="load"),
    Option("policy", "ds2, threshold, dhalion; several by commas, with options of their own by semicolons", TEXT, _WHAT,
           "ds2,threshold,dhalion", field="policy"),
    Option("mechanism", "mechanisms, separated by commas", TEXT, _WHAT, "megaphone-batched,meces,runtime-restart",
           field="mechanism"),
    Option("mode", "how Spark runs the query", TEXT, _WHAT, "real-time", subject="The mode", choices=MODES,
           field="mode"),
    _of("option"), _of("rounds", default=1), _of("seed", default=1),
    Option("simulate", "do not measure, but simulate up to this many workers, in micro-batches", COUNT, _WHAT,
           shown="measure", subject="The number of workers"),
    Option("duration", "length of each load", REAL, _LOAD, 60.0, "seconds", subject="The duration of the load",
           least=12, field="duration"),
    Option("cost_us", "what each record waits at its worker", REAL, _LOAD, 20_000.0, "µs",
           subject="The cost of a record", least=100, most=1_000_000, field="cost_us"),
    Option("max", "most workers", COUNT, _CLUSTER, 8, subject="The number of workers", least=2, most=64, field="most"),
    _of("bins", default=32),
    Option("utilisation", "share of a worker's time that is to be useful", REAL, _CLUSTER, 0.6,
           subject="The utilisation", least=0.1, most=1, field="utilisation"),
    Option("interval", "length of an interval", REAL, _CLUSTER, 1.0, "seconds", subject="The interval", least=0.1,
           field="interval"),
    Option("cooldown", "least time between rescales", REAL, _CLUSTER, 2.0, "seconds", subject="The cool-down", least=0,
           field="cooldown"),
    Option("objective_ms", "latency that the 99th percentile is not to exceed", REAL, _CLUSTER, 1_000.0, "ms",
           subject="The objective", least=1, field="objective_ms"),
    *running("two loads, one policy, two mechanisms, about 5 minutes"),
)
ENGINES_QUICK: dict[str, Any] = {"keys": "20k", "rate": 1_000, "duration_s": 36.0}
ENGINES = (
    _mechanism("megaphone-batched, native-real-time, flink-adaptive, flink-savepoint, kafka-streams-classic,"
               " kafka-streams-instance, kafka-floor"),
    _of("option"),
    _of("fault", text="run every engine a second time with a fault in its first rescale: worker@migrating or"
        " broker@migrating"),
    _of("keys", "1M,4M,10M", "numbers of keys, separated by commas", **_SEVERAL),
    _of("query", "a count of keys", "q5 or q8, or both by a comma: queries of NEXMark's in place of the count;"
        " latencies are those of results"),
    _of("rate", "10k records/s"),
    _of("arrivals", "10 ms", "how far apart records arrive; several by commas are as many tables, such as 10,1",
        **_SEVERAL),
    _of("duration", "60 seconds"), _of("rounds", default=1), _of("seed"),
    _of("workers", "2:4", "FROM:TO of the rescale, which is taken back later"), _of("bins"), _of("batch"),
    *running("few keys, about 5 minutes"),
    Option("reference", "put table and figures into results/reference/engines", FLAG, "Output"),
)
PERF = (
    Option("part", f"parts, by commas: {', '.join(part_names())}", TEXT, _WHAT, shown="all"),
    *running("small and short: shows that every part works, about 5 minutes",
             "measure anew although a result of the same code is there, or is half done"),
    Option("reference", "put the parts measured into results/reference", FLAG, "Output"),
)
REGRESS = (
    Option("base", "revision to compare with, such as origin/main", TEXT, _WHAT,
           shown="that of results/reference/regress.json"),
    Option("head", "revision to judge", TEXT, _WHAT, "HEAD"),
    Option("pairs", "runs of each revision in a round; a suspect is confirmed by a second round", COUNT, _WHAT, 9,
           subject="The number of pairs"),
    Option("resample", "of a revision as base and head: draw so many comparisons of one round, to see chance",
           COUNT, _WHAT, shown="compare once", subject="The number of comparisons"),
    _mechanism("megaphone-batched", kind=TEXT),
    replace(_MODE, group=_WHAT, default=None, shown="each revision's own"), _of("workload", "dense"),
    _of("keys", "1M"), _of("rate"), _of("arrivals"), _of("duration", "18 seconds"), _of("workers"), _of("bins"),
    *(option for option in running("a small load") if option.name != "force"),
    Option("reference", "store the comparison, which names the base of later ones", FLAG, "Output"),
)
PROFILE = (
    _of("mechanism", default="megaphone-batched"), replace(_MODE, group=_WHAT, default=REAL_TIME),
    _of("workload", default="hash"), _of("query"), _of("keys", default="1M"), _of("rate"), _of("arrivals"),
    _of("workers", default="2"), _of("bins"),
    Option("seconds", "length of what is sampled", REAL, _LOAD, 8.0, "seconds", subject="The length", least=1,
           most=600),
    Option("output", "folder for results", FOLDER, "Output", default="", shown="results/"),
)
CLAIMS = (
    Option("only", "this claim, or several separated by commas", default="", shown="all"),
    Option("results", "use the results in this folder and run nothing", FOLDER, default="", shown="run the rest"),
    Option("quick", "without the claims that take more than 10 minutes each", FLAG),
    Option("force", "measure anew although a result is there", FLAG),
    Option("list", "say what there is and how long it takes, and run nothing", FLAG),
)
_OUTPUT = Option("output", "folder for results", FOLDER, default="", shown="results/")
FAULTS = (
    Option("seed", "seed of the schedule of faults", INTEGER, default=1, least=0, subject="The seed"),
    Option("mechanism", "mechanisms under test, separated by commas", default="", shown="the four that must stand it"),
    Option("only", "these faults only, as victim@point separated by commas, each with every mechanism", default="",
           shown="a schedule of all"),
    Option("quick", "the twelve faults that show the most, about 3 minutes", FLAG),
    Option("durability", "process or host", default="process"),
    _MODE,
    Option("cluster", "hosts of a Spark cluster on this machine that the query runs on; what happens to these instead",
           COUNT, shown="no cluster", subject="The number of hosts", least=2, most=HOSTS_MOST),
    Option("chain", "a chain of two stages, in each of which every second fault happens; about 50 minutes", FLAG),
    _OUTPUT,
)
CHANGES_QUICK: dict[str, Any] = {"keys": 20_000, "rate": 2_000, "bins": 64, "duration_s": 6.0, "lead_in_s": 3.0}
CHANGES = (
    Option("experiment", "rebalance, insert-filter, replace-function or change-shape, several separated by commas",
           TEXT, _WHAT, default="", shown="all"),
    _of("mechanism", "megaphone-batched", "how bins move where the query is not stopped for that"),
    replace(_MODE, group=_WHAT),
    Option("faults", "in place of measuring, kill processes and the broker in the midst of so many changes",
           COUNT, _WHAT, shown="measure", subject="The number of faults"),
    _of("keys", "1M", default=1_000_000), _of("rate", "5,000 records/s"), _of("bins", "256"),
    _of("workers", "2:4", "number of workers, and after the rescale in the midst of a change of state"),
    _of("duration", "12 seconds", "length of the steady part before the change"), _of("lead_in", "5 seconds"),
    _of("seed", "", "seed of the keys"),
    *running("small state and a low rate, about 3 minutes"),
)
CONFORMANCE = (
    Option("mechanism", "mechanisms, separated by commas", default="", shown="all"),
    Option("operator", "dense or hash", default="", shown="both"),
    Option("scenario", "scenarios, separated by commas: refused, nothing, grow, rebalance, there and back, ...",
           default="", shown="all"),
    Option("quick", "a selection in which every pair of values occurs, as in ./inv test", FLAG),
    _MODE,
    replace(_KNOWN["cluster"], help="hosts of a Spark cluster on this machine, on which all queries run", group=""),
    _OUTPUT,
    Option("force", "begin anew although a result of the same code is half done", FLAG),
)
SCALE = (  # defaults are those of harness.suites.scale.scenario
    _mechanism("all"), _of("option"),
    Option("calibrate", "result folders, separated by commas, to take the costs from", TEXT,
           _WHAT, shown="simulate"),
    Option("check", "result folder to compare predictions with", FOLDER, _WHAT, shown="simulate"),
    Option("costs", "file of costs to read, or to write with --calibrate", TEXT, _WHAT, shown="those stored here"),
    _of("seed", "", "seed of the load and of the times of epochs"),
    Option("jobs", "processes", COUNT, _WHAT, shown="one per core", subject="The number of processes"),
    _of("rate", "", "rate in all", default=2_500_000),
    Option("state", "bytes of state in all, such as 1TB", BYTES, _LOAD, 10**12, shown="1TB", subject="The state",
           field="state_bytes"),
    Option("distribution", "uniform or zipf", TEXT, _LOAD, "uniform", field="distribution"),
    Option("exponent", "exponent of the Zipf law", REAL, _LOAD, 1.0, least=0, most=10, field="exponent",
           subject="The exponent of the Zipf law"),
    Option("workers", "number of workers, of which a quarter of the state moves (Megaphone's pattern), or FROM:TO",
           WORKERS, _CLUSTER, 1000, subject="The number of workers", field="workers"),
    _of("bins", default=1 << 16, most=1 << 20),
    Option("bandwidth", "most bytes per second that a worker pulls or copies, such as 1.25G", BYTES, _CLUSTER,
           shown="as measured on one host", subject="The bandwidth"),
    Option("hosts", "hosts over which workers are dealt out", COUNT, _CLUSTER, 0, shown="nothing between workers",
           subject="The number of hosts", field="hosts"),
    Option("net_mbps", "megabits per second that a host sends, and receives", REAL, _CLUSTER, 0.0, least=1, most=10**7,
           shown="as many as its processes can", subject="The network's bandwidth", field="net_mbps"),
    Option("net_delay_ms", "delay of each packet between hosts", REAL, _CLUSTER, 0.0, least=0, most=10_000, shown="0",
           subject="The network's delay", field="net_delay_ms"),
)
