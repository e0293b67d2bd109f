"""Everything this repository can do; `./inv --list` prints it."""

import shlex
import sys

from invoke import Collection, Context, task

from harness.cli import docker
from harness.cli.development import check, clean, fmt, lock, test  # noqa: F401 - found by invoke
from harness.cli.look import (  # noqa: F401
    compare,
    doctor,
    export,
    figures,
    mechanisms,
    report,
    reproduce,
    rescale,
    status,
    validate,
)
from harness.cli.running import given, run_module


@task(
    help={
        "mechanism": "mechanisms to compare, separated by commas",
        "workload": "dense (counts in an array per bin, the default), hash (an entry per key) or nexmark",
        "query": "nexmark: q0 to q8; several, separated by commas, are an experiment each",
        "profile": "nexmark: default (100 auctions in flight), large-state:horizon=1200 or large-state:auctions=N",
        "out-of-order": "nexmark: group=N,probability=P,delay=SECONDS",
        "keys": "number of keys, such as 4000000, 4e6 or 4M",
        "distribution": "uniform, zipf, or drift:keys=N,share=S,speed=V, a hot set of N keys that moves",
        "exponent": "of the Zipf law",
        "rate": "records per second",
        "rate-shape": "constant, step:10=5,20=50, sine:period=30, spike:at=10, csv:PATH, csv-steps:PATH",
        "cost-us": "microseconds that each record costs its worker",
        "cost": "wait (a remote call, the default) or compute",
        "value-bytes": "hash: bytes kept per key besides the count",
        "duration": "seconds of measured load",
        "workers": "N, or FROM:TO for a rescale",
        "bins": "number of bins, a power of two up to 16384",
        "policy": "minimal_move, contiguous, consistent_hashing:virtual_nodes=64 or load_aware:imbalance=0.05",
        "migration": "pattern (Megaphone's), rescale, rebalance (by the policy), none, or a plan file",
        "option": "options of the mechanisms, NAME=VALUE,NAME=VALUE; ./inv mechanisms lists them",
        "all": "every mechanism there is",
        "seed": "of keys and of the order of runs",
        "rounds": "repetitions, interleaved",
        "quick": "none and two mechanisms on a small load, under 90 s",
        "max-offsets-per-trigger": "Spark's limit on records per epoch",
        "bootstrap-servers": "an existing broker instead of an embedded one",
        "state-dir": "folder for the workers' state instead of the result folder",
        "durability": "what the state survives: none, process (the default) or host (flushed to disk)",
        "master": "Spark master instead of local mode",
        "fault": "run every mechanism a second time with a fault in its migration: victim@migrating or victim@point",
        "metrics-port": "answer Prometheus on this port of 127.0.0.1 while runs go on",
        "output": "folder for results",
        "name": "name of the experiment",
        "force": "run although the same result is there already",
        "resume": "go on with the last unfinished result of the same experiment",
    }
)
def bench(
    c: Context,
    mechanism=None,
    workload=None,
    query=None,
    profile=None,
    out_of_order=None,
    keys=None,
    distribution=None,
    exponent=None,
    rate=None,
    rate_shape=None,
    cost_us=None,
    cost=None,
    value_bytes=None,
    duration=None,
    workers=None,
    bins=None,
    policy=None,
    migration=None,
    option=None,
    seed=None,
    rounds=None,
    all=False,  # noqa: A002 - the option's name
    quick=False,
    max_offsets_per_trigger=None,
    bootstrap_servers=None,
    state_dir=None,
    durability=None,
    master=None,
    fault=None,
    metrics_port=None,
    output=None,
    name=None,
    force=False,
    resume=False,
):
    """Compare migration mechanisms on one workload: verdicts, latencies, figures and a report."""
    options = given(locals())
    from harness.suites.bench import run_bench

    sys.exit(run_bench(options))


@task(
    help={
        "preset": "bins, domain, constant-bytes-per-bin, load or skew: a sweep of the literature",
        "mechanism": "mechanisms, separated by commas",
        "keys": "numbers of keys, separated by commas, as are the next four",
        "bins": "numbers of bins",
        "rate": "records per second",
        "skew": "exponents of the Zipf law, 0 for uniform keys",
        "policy": "placement policies; with options of their own, separated by semicolons",
        "workload": "dense or hash",
        "workers": "N, or FROM:TO for a rescale",
        "migration": "pattern, rescale, rebalance or a plan file",
        "option": "options of the mechanisms, NAME=VALUE,NAME=VALUE",
        "cost-us": "microseconds that each record costs its worker",
        "cost": "wait or compute",
        "duration": "seconds of measured load of each run",
        "seed": "of keys and of the order of runs",
        "rounds": "repetitions, interleaved",
        "quick": "few small cells, a few minutes",
        "output": "folder for results",
        "name": "name of the sweep",
        "force": "measure anew although the same result is there, or is half done",
    }
)
def sweep(
    c: Context,
    preset="",
    mechanism=None,
    keys=None,
    bins=None,
    rate=None,
    skew=None,
    policy=None,
    workload=None,
    workers=None,
    migration=None,
    option=None,
    cost_us=None,
    cost=None,
    duration=None,
    seed=None,
    rounds=None,
    quick=False,
    output=None,
    name=None,
    force=False,
):
    """Measure a grid of mechanism x keys x bins x rate x skew x policy; what is done is skipped on repeat."""
    options = given(locals())
    from harness.suites.sweep.run import run_sweep

    sys.exit(run_sweep(options))


@task(
    help={
        "part": "parts, separated by commas: steady, rate, phases, restart, migratable, moved, growth; all by default",
        "quick": "small and short: shows that every part works, about 8 minutes",
        "output": "folder for results",
        "force": "measure anew although a result of the same code is there, or is half done",
        "reference": "put the tables and figures into results/reference",
    }
)
def perf(c: Context, part="", quick=False, output="", force=False, reference=False):
    """Measure against Spark's own state: steady state, highest rate, restart, cost of bins, bytes moved, growth."""
    options = given(locals())
    from harness.suites.perf.suite import run_perf

    sys.exit(run_perf(options))


@task(
    help={
        "query": "queries, separated by commas; q0 to q8 by default",
        "mechanism": "mechanisms, separated by commas; megaphone-batched and meces by default",
        "profile": "default, large-state:horizon=SECONDS or large-state:auctions=N",
        "rate": "events per second",
        "workers": "FROM:TO of the rescale, or N for Megaphone's pattern",
        "bins": "number of bins, a power of two",
        "duration": "seconds of measured load",
        "fault": "a second run of each with a fault in its migration: victim@migrating or victim@point",
        "quick": "a small load, about 6 minutes for all queries and one mechanism",
        "output": "folder for results",
        "force": "run although the same result is there already",
    }
)
def nexmark(
    c: Context,
    query="",
    mechanism="",
    profile="",
    rate="",
    workers="",
    bins="",
    duration="",
    fault="",
    quick=False,
    output="",
    force=False,
):
    """Run NEXMark's queries across a rescale, each checked against its oracle, and print their table."""
    options = given(locals())
    from harness.suites.nexmark.suite import run_nexmark

    sys.exit(run_nexmark(options))


@task(
    help={
        "base": "revision to compare with, such as origin/main",
        "head": "revision to judge; HEAD by default",
        "pairs": "runs of each revision in a round, 9 by default; a suspect is confirmed by a second round",
        "resample": "of a revision as base and head: draw so many comparisons from one round, to see what chance says",
        "mechanism": "mechanisms, separated by commas; megaphone-batched by default",
        "keys": "number of keys, 1M by default",
        "rate": "records per second",
        "duration": "seconds of measured load of each run",
        "quick": "a small load",
        "output": "folder for results, also for history.jsonl and trend.html",
    }
)
def regress(
    c: Context,
    base,
    head="",
    pairs="",
    resample="",
    mechanism="",
    keys="",
    rate="",
    duration="",
    quick=False,
    output="",
):
    """Say whether a revision is slower than another: both run in turns on this machine; exit code 1 if so."""
    options = given(locals())
    from harness.suites.regress.run import run_regress

    sys.exit(run_regress(options))


@task(
    help={
        "only": "this claim, or several separated by commas",
        "results": "use the results in this folder and run nothing",
        "quick": "without the claims that take more than 10 minutes each",
        "force": "measure anew although a result is there",
        "list": "say what there is and how long it takes, and run nothing",
    }
)
def verify_claims(c: Context, only="", results="", quick=False, force=False, list=False):  # noqa: A002
    """Check every claim of harness/suites/claims/claims.toml: runs what is missing, prints PASS, FAIL or UNKNOWN."""
    from harness.suites.claims.verify import run_claims

    sys.exit(run_claims(only=only, results=results, quick=quick, force=force, listing=list))


@task(
    help={
        "seed": "of the schedule of faults",
        "mechanism": "mechanisms under test, separated by commas; the four that must stand it by default",
        "only": "these faults only, as victim@point separated by commas, each with every mechanism",
        "quick": "the twelve faults that show the most, about 3 minutes",
        "durability": "process or host",
        "output": "folder for results",
    }
)
def fault_test(c: Context, seed=1, mechanism="", only="", quick=False, durability="process", output=None):
    """Kill processes, damage files and fill disks while a query migrates; nothing may be lost or doubled."""
    from harness.suites.faults.run import run_fault_test

    options = {"mechanism": mechanism, "only": only, "quick": quick, "durability": durability, "output": output}
    sys.exit(run_fault_test(seed=seed, **options))


@task(
    help={
        "mechanism": "mechanisms, separated by commas; all of them by default",
        "operator": "dense or hash",
        "scenario": "scenarios, separated by commas: refused, nothing, grow, rebalance, there and back, ...",
        "quick": "a selection in which every pair of values occurs, as in ./inv test",
        "output": "folder for results",
        "force": "begin anew although a result of the same code is half done",
    }
)
def conformance(c: Context, mechanism="", operator="", scenario="", quick=False, output="", force=False):
    """Carry out every mechanism x operator x scenario x keys on Spark; each case must be valid within its bound."""
    from harness.suites.conformance.run import run_conformance

    options = {"mechanism": mechanism, "operator": operator, "scenario": scenario, "output": output}
    sys.exit(run_conformance(**options, quick=quick, force=force))


@task(help={"workload": "dense or hash", "keys": "numbers of keys, separated by commas", "rounds": "repetitions"})
def recovery_curve(c: Context, workload: str = "dense", keys: str = "100k,1M,4M,10M", rounds: int = 3) -> None:
    """Measure how long a worker of a given size takes to be rebuilt from the checkpoint."""
    run_module(
        c, f"harness.suites.perf.recovery --workload {workload} --keys {shlex.quote(keys)} --rounds {int(rounds)}"
    )


@task(help={"workload": "dense or hash", "keys": "number of keys", "rounds": "repetitions", "output": "folder"})
def durability_cost(c: Context, workload: str = "dense", keys: str = "4M", rounds: int = 5, output: str = "") -> None:
    """Measure what the changelog costs: the same load with durability none, process and host, interleaved."""
    more = f" --output {shlex.quote(output)}" if output else ""
    run_module(
        c,
        f"harness.suites.perf.durability --workload {workload} --keys {shlex.quote(keys)} --rounds {int(rounds)}{more}",
    )


@task(
    help={
        "events": "number of events in a round",
        "rounds": "repetitions",
        "profile": "default or large-state; options behind a colon",
        "at-least": "events/s of one core below which the exit code is 1",
    }
)
def generator_speed(c: Context, events=400_000, rounds=5, profile="default", at_least=0) -> None:
    """Measure how many NEXMark events per second one process makes on one core, as JSON and sent nowhere."""
    options = f"--events {int(events)} --rounds {int(rounds)} --at-least {int(at_least)}"
    run_module(c, f"generators.nexmark.speed {options} --profile {shlex.quote(profile)}")


@task(help={"seeds": "number of seeds, from 0 on", "seed": "only this one", "jobs": "processes"})
def simulate(c: Context, seeds: int = 1000, seed: int | None = None, jobs: int = 2) -> None:
    """Simulate migrations under faults, all of a run drawn from its seed, until one goes wrong."""
    one = "" if seed is None else f"--seed {int(seed)}"
    run_module(c, f"tests.simulation.simulate --seeds {int(seeds)} --jobs {int(jobs)} {one}")


@task(
    help={
        "workers": "N, or FROM:TO for a rescale; N alone moves a quarter of the state (Megaphone's pattern)",
        "bins": "number of bins, a power of two",
        "state": "bytes of state in all, such as 1TB",
        "rate": "records per second in all",
        "distribution": "uniform or zipf",
        "exponent": "of the Zipf law",
        "mechanism": "mechanisms to simulate, separated by commas; all by default",
        "option": "options of the mechanisms, NAME=VALUE,NAME=VALUE",
        "bandwidth": "most bytes per second that a worker pulls or copies, such as 1.25G",
        "seed": "of the load and of epochs' times",
        "jobs": "processes, one per core by default",
        "costs": "file of costs to read, or to write with --calibrate",
        "calibrate": "result folders, separated by commas, to take the costs from",
        "check": "result folder to compare predictions with",
    }
)
def simulate_scale(
    c: Context,
    workers=None,
    bins=None,
    state=None,
    rate=None,
    distribution=None,
    exponent=None,
    mechanism=None,
    option=None,
    bandwidth=None,
    seed=None,
    jobs=None,
    costs=None,
    calibrate=None,
    check=None,  # noqa: F811 - the option's name
):
    """Predict every mechanism's peak and duration with 1,000 workers, 2^16 bins and 1 TB of state."""
    options = given(locals())
    from harness.suites.scale.command import run_simulate_scale

    sys.exit(run_simulate_scale(options))


namespace = Collection.from_module(sys.modules[__name__])
namespace.add_collection(Collection.from_module(docker, name="docker"))
