"""Tasks that run a suite, from bench to simulate-scale, or measure one thing."""

import shlex
from typing import Any

from invoke.context import Context

from harness.cli.verb import run, run_module, verb
from harness.experiment.parameters import BENCH, PRESETS, PROBED
from harness.options.declared import COUNT, FLAG, INTEGER, REAL, Option
from harness.suites import options


@verb(*BENCH, presets={**PRESETS, "standard": PRESETS["standard"] | PROBED})
def bench(c: Context, **given: Any) -> None:
    """Compare migration mechanisms on one workload: verdicts, latencies, figures and a report.

    Where two defaults are shown, "standard" is that of a comparison of which nothing is said about what to run
    (--mechanism, --all, --workload, --query, --profile, --fault, --value-bytes, --cost-us), and the first one holds
    otherwise; "--quick" is that of the quick form.

    A standard comparison on this machine takes its rate from a probe of the machine of 5 seconds: the highest, up to
    10,000 records/s, that leaves a third of its processors idle. The probe is kept with the results, until "--force".
    "--rate" overrides it.
    """
    run("harness.suites.bench:run_bench", given)


@verb(*options.SWEEP, presets={"--quick": options.SWEEP_QUICK})
def sweep(c: Context, **given: Any) -> None:
    """Measure a grid of mechanism x keys x bins x rate x skew x policy; what is done is skipped on repeat."""
    run("harness.suites.sweep:run_sweep", given)


@verb(*options.PERF)
def perf(c: Context, **given: Any) -> None:
    """Measure against Spark's own state: steady state, highest rate, restart, cost of bins, bytes moved, growth."""
    run("harness.suites.perf.suite:run_perf", given)


@verb(*options.NEXMARK, presets={"--quick": options.NEXMARK_QUICK})
def nexmark(c: Context, **given: Any) -> None:
    """Run NEXMark's queries across a rescale, each checked against its oracle, and print their table."""
    run("harness.suites.nexmark:run_nexmark", given)


@verb(*options.PROFILE)
def profile(c: Context, **given: Any) -> None:
    """Draw flame graphs of a query under load: of its driver, and of the worker that computes most."""
    run("harness.suites.profile:run_profile", given)


@verb(*options.CHANGES, presets={"--quick": options.CHANGES_QUICK})
def changes(c: Context, **given: Any) -> None:
    """Change a query while it runs: a filter put in, a function replaced, state of another shape; against restarts."""
    run("harness.suites.changes.suite:run_changes", given)


@verb(*options.ENGINES, presets={"--quick": options.ENGINES_QUICK})
def compare_engines(c: Context, **given: Any) -> None:
    """Compare this runtime with Spark, Flink and Kafka Streams: one count, one rescale, one oracle, one table."""
    run("harness.suites.engines.suite:run_compare_engines", given)


@verb(*options.AUTOSCALE, presets={"--quick": options.AUTOSCALE_QUICK})
def autoscale(c: Context, **given: Any) -> None:
    """Let policies rescale queries under loads that change: seconds above the objective, worker-seconds, rescales."""
    run("harness.suites.autoscale.command:run_autoscale", given)


@verb(*options.REGRESS)
def regress(c: Context, **given: Any) -> None:
    """Say whether a revision is slower than another: both run in turns on this machine; exit code 1 if so."""
    run("harness.suites.regress.run:run_regress", given)


@verb(*options.CLAIMS)
def verify_claims(c: Context, **given: Any) -> None:
    """Check every claim of harness/suites/claims/claims.toml: runs what is missing, prints PASS, FAIL or UNKNOWN."""
    run("harness.suites.claims.verify:run_claims", listing=given.pop("list"), **given)


@verb(*options.FAULTS)
def fault_test(c: Context, **given: Any) -> None:
    """Kill processes, damage files and fill disks while a query migrates; nothing may be lost or doubled."""
    run("harness.suites.faults.run:run_fault_test", **given)


@verb(*options.CONFORMANCE)
def conformance(c: Context, **given: Any) -> None:
    """Run every mechanism x operator x scenario x keys on Spark; each case must be valid within its bound."""
    run("harness.suites.conformance.run:run_conformance", **given)


@verb(*options.SCALE)
def simulate_scale(c: Context, **given: Any) -> None:
    """Predict every mechanism's peak and duration with 1,000 workers, 2^16 bins and 1 TB of state."""
    run("harness.suites.scale.command:run_simulate_scale", given)


def _module(c: Context, module: str, options: dict[str, Any]) -> None:
    """Runs a module with the options that have a value."""
    given = {
        f"--{name.replace('_', '-')}": value
        for name, value in options.items()
        if value is not None and value is not False
    }
    words = [name if value is True else f"{name} {shlex.quote(str(value))}" for name, value in given.items()]
    run_module(c, f"{module} {' '.join(words)}")


@verb(
    Option("events", "number of events in a round", COUNT, default=400_000, subject="The number of events"),
    Option("rounds", "repetitions", COUNT, default=5, subject="The number of rounds"),
    Option("profile", "default or large-state; options behind a colon", default="default"),
    Option("at_least", "events/s of one core below which the exit code is 1", INTEGER, default=0),
)
def generator_speed(c: Context, **given: Any) -> None:
    """Measure how many NEXMark events per second one process makes on one core, as JSON and sent nowhere."""
    _module(c, "generators.nexmark.speed", given)


@verb(
    Option("seeds", "number of seeds", COUNT, default=1000, subject="The number of seeds"),
    Option("first", "the first of them: a run that was interrupted says with which to go on", INTEGER, default=0),
    Option("seed", "only this one", INTEGER, shown="all of them"),
    Option("jobs", "processes", COUNT, default=2, subject="The number of processes"),
    Option("hosts", "on clusters of two to five hosts, which are lost, cut off and come back", FLAG),
    Option("mode", "micro-batch or real-time", default="micro-batch"),
    Option("chains", "two queries in real time, the second of which reads the results of the first", FLAG),
    Option("exhaustive", "instead of seeds, a small query in real time in every order of its events", FLAG),
    Option("minutes", "for how long --exhaustive searches, all mechanisms together", REAL, default=10.0),
    Option("replay", "MECHANISM=CHOICES, of a violation that --exhaustive has found", shown="no replay"),
)
def simulate(c: Context, **given: Any) -> None:
    """Simulate migrations under faults, all of a run drawn from its seed, until one goes wrong.

    "--exhaustive" runs small queries of real time instead (2 workers, 2 routers, 4 bins, 8 records, a migration, and a
    task that dies) in every order of the events of the migration's first two epochs, and says up to how many deviations
    from one fixed order it came: those with fewest come first. Each failure's place is tried at no deviation.
    """
    _module(c, "tests.simulation.simulate", given)
