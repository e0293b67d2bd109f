"""The options of every suite: an experiment's own, where a suite has them, and its few others."""

from dataclasses import replace
from typing import Any

from harness.experiment.parameters import PARAMETERS, running
from harness.options.declared import (
    BYTES,
    COUNT,
    FLAG,
    FOLDER,
    INTEGER,
    NAMES,
    POWER,
    REAL,
    TEXT,
    WORKERS,
    Option,
    picked,
)

__all__ = [
    "AXES", "CLAIMS", "CONFORMANCE", "FAULTS", "NEXMARK", "NEXMARK_QUICK", "PERF", "REGRESS", "SCALE", "SWEEP",
    "SWEEP_QUICK",
]  # fmt: skip

AXES = ("keys", "bins", "rate", "skew", "policy")
SWEEP_QUICK: dict[str, Any] = {"duration_s": 7.5, "lead_in_s": 3.0}
NEXMARK_QUICK: dict[str, Any] = {"rate": 2_000, "duration_s": 18.0, "lead_in_s": 3.0, "bins": 64}
_WHAT, _LOAD, _CLUSTER = "What to run", "Load", "Cluster"
_SEVERAL: dict[str, Any] = {"kind": TEXT, "least": None, "most": None}
_PRESETS = "the preset's, or "


def _mechanism(shown: str, **more: Any) -> Option:
    return replace(picked(PARAMETERS, "mechanism")[0], help="mechanisms, separated by commas", shown=shown, **more)


SWEEP = (
    Option(
        "preset",
        "bins, domain, constant-bytes-per-bin, load or skew: a sweep of the literature",
        group=_WHAT,
        shown="a free grid",
    ),
    _mechanism(f"{_PRESETS}none,megaphone-all-at-once,megaphone-batched"),
    *picked(PARAMETERS, "option", "workload", "cost_us", "cost", "migration", "rounds", "seed"),
    *(
        replace(option, **_SEVERAL, help=text, shown=f"{_PRESETS}{shown}")
        for option, text, shown in zip(
            picked(PARAMETERS, "keys", "rate"),
            ("numbers of keys, separated by commas", "rates, separated by commas"),
            ("4M", "10k records/s"),
            strict=True,
        )
    ),
    Option(
        "skew", "exponents of the Zipf law, separated by commas, 0 for uniform keys", group=_LOAD, shown=f"{_PRESETS}0"
    ),
    *picked(PARAMETERS, "duration", "workers"),
    *(
        replace(option, **_SEVERAL, help=text)
        for option, text in zip(
            picked(PARAMETERS, "bins", "policy"),
            (
                "numbers of bins, separated by commas",
                "placement policies, separated by commas; with options of their own, by semicolons",
            ),
            strict=True,
        )
    ),
    *running("few small cells, a few minutes", "measure anew although the same result is there, or is half done"),
    replace(picked(PARAMETERS, "name")[0], shown="sweep-PRESET, or sweep-grid"),
)

NEXMARK = (
    replace(picked(PARAMETERS, "query")[0], help="queries, separated by commas", shown="q0 to q8"),
    _mechanism("megaphone-batched,meces, and native-repartition where Spark can"),
    *picked(PARAMETERS, "fault", "profile", "rate"),
    replace(picked(PARAMETERS, "duration")[0], default=24.0),
    replace(picked(PARAMETERS, "workers")[0], help="FROM:TO of the rescale, or N for Megaphone's pattern", shown="2:4"),
    *picked(PARAMETERS, "bins"),
    *running("a small load, about 6 minutes for all queries and one mechanism"),
)

PERF = (
    Option(
        "part",
        "parts, separated by commas: steady, rate, phases, restart, migratable, moved, growth",
        group=_WHAT,
        shown="all",
    ),
    *running(
        "small and short: shows that every part works, about 8 minutes",
        "measure anew although a result of the same code is there, or is half done",
    ),
    Option("reference", "put the tables and figures into results/reference", FLAG, "Output"),
)

REGRESS = (
    Option("base", "revision to compare with, such as origin/main", group=_WHAT, required=True),
    Option("head", "revision to judge", group=_WHAT, default="HEAD"),
    Option(
        "pairs",
        "runs of each revision in a round; a suspect is confirmed by a second round",
        COUNT,
        _WHAT,
        9,
        subject="The number of pairs",
    ),
    Option(
        "resample",
        "of a revision as base and head: draw so many comparisons from one round, to see what chance says",
        COUNT,
        _WHAT,
        shown="compare once",
        subject="The number of comparisons",
    ),
    _mechanism("megaphone-batched", kind=TEXT),
    *(
        replace(option, shown=shown)
        for option, shown in zip(
            picked(PARAMETERS, "keys", "rate", "duration"), ("1M", "10k records/s", "18 seconds"), strict=True
        )
    ),
    *(option for option in running("a small load") if option.name != "force"),
)

CLAIMS = (
    Option("only", "this claim, or several separated by commas", default="", shown="all"),
    Option("results", "use the results in this folder and run nothing", default="", shown="run what is missing"),
    Option("quick", "without the claims that take more than 10 minutes each", FLAG),
    Option("force", "measure anew although a result is there", FLAG),
    Option("list", "say what there is and how long it takes, and run nothing", FLAG),
)

FAULTS = (
    Option("seed", "what the schedule of faults is drawn from", INTEGER, default=1, least=0, subject="The seed"),
    Option("mechanism", "mechanisms under test, separated by commas", default="", shown="the four that must stand it"),
    Option(
        "only",
        "these faults only, as victim@point separated by commas, each with every mechanism",
        default="",
        shown="a schedule of all",
    ),
    Option("quick", "the twelve faults that show the most, about 3 minutes", FLAG),
    Option("durability", "process or host", default="process"),
    Option("output", "folder for results", FOLDER, shown="results/"),
)

CONFORMANCE = (
    Option("mechanism", "mechanisms, separated by commas", default="", shown="all"),
    Option("operator", "dense or hash", default="", shown="both"),
    Option(
        "scenario",
        "scenarios, separated by commas: refused, nothing, grow, rebalance, there and back, ...",
        default="",
        shown="all",
    ),
    Option("quick", "a selection in which every pair of values occurs, as in ./inv test", FLAG),
    Option("output", "folder for results", FOLDER, default="", shown="results/"),
    Option("force", "begin anew although a result of the same code is half done", FLAG),
)

SCALE = (
    _mechanism("all", kind=NAMES),
    *(replace(option, group=_WHAT) for option in picked(PARAMETERS, "option")),
    Option("calibrate", "result folders, separated by commas, to take the costs from", group=_WHAT, shown="simulate"),
    Option("check", "result folder to compare predictions with", group=_WHAT, shown="simulate"),
    Option(
        "costs", "file of costs to read, or to write with --calibrate", group=_WHAT, shown="those of this repository"
    ),
    Option(
        "seed",
        "what the load and the epochs' times are drawn from",
        INTEGER,
        _WHAT,
        1,
        least=0,
        subject="The seed",
        field="seed",
    ),
    Option("jobs", "processes", COUNT, _WHAT, shown="one per core", subject="The number of processes"),
    Option("rate", "rate in all", COUNT, _LOAD, 2_500_000, "records/s", subject="The rate", field="rate"),
    Option(
        "state",
        "bytes of state in all, such as 1TB",
        BYTES,
        _LOAD,
        default=10**12,
        shown="1TB",
        subject="The state",
        field="state_bytes",
    ),
    Option("distribution", "uniform or zipf", group=_LOAD, default="uniform", field="distribution"),
    Option(
        "exponent",
        "exponent of the Zipf law",
        REAL,
        _LOAD,
        1.0,
        least=0,
        most=10,
        subject="The exponent of the Zipf law",
        field="exponent",
    ),
    Option(
        "workers",
        "number of workers, which moves a quarter of the state (Megaphone's pattern), or FROM:TO for a rescale",
        WORKERS,
        _CLUSTER,
        1000,
        subject="The number of workers",
        field="workers",
    ),
    Option(
        "bins",
        "number of bins, a power of two",
        POWER,
        _CLUSTER,
        1 << 16,
        least=1,
        most=1 << 20,
        subject="The number of bins",
        field="bins",
    ),
    Option(
        "bandwidth",
        "most bytes per second that a worker pulls or copies, such as 1.25G",
        BYTES,
        _CLUSTER,
        shown="as measured on one host",
        subject="The bandwidth",
    ),
)
