"""Tasks that measure one thing, each a module of its own that prints lines."""

import shlex
from typing import Any

from invoke.context import Context

from harness.cli.verb import run_module, verb
from harness.options.declared import COUNT, INTEGER, Option

__all__ = ["durability_cost", "generator_speed", "recovery_curve", "simulate"]

_WORKLOAD = Option("workload", "dense or hash", default="dense", choices=("dense", "hash"), subject="The workload")


def _rounds(number: int) -> Option:
    return Option("rounds", "repetitions", COUNT, default=number, subject="The number of rounds")


def _module(c: Context, module: str, options: dict[str, Any]) -> None:
    """Runs a module with the options that have a value."""
    words = [
        f"--{name.replace('_', '-')} {shlex.quote(str(value))}" for name, value in options.items() if value is not None
    ]
    run_module(c, f"{module} {' '.join(words)}")


@verb(
    _WORKLOAD,
    Option("keys", "numbers of keys, separated by commas", default="100k,1M,4M,10M"),
    _rounds(3),
)
def recovery_curve(c: Context, **given: Any) -> None:
    """Measure how long a worker of a given size takes to be rebuilt from the checkpoint."""
    _module(c, "harness.suites.perf.recovery", given)


@verb(
    _WORKLOAD,
    Option("keys", "number of keys", default="4M"),
    _rounds(5),
    Option("output", "folder for results; the same folder again goes on where it was cut off", shown="results/"),
)
def durability_cost(c: Context, **given: Any) -> None:
    """Measure what the changelog costs: the same load with durability none, process and host, interleaved."""
    _module(c, "harness.suites.perf.durability", given)


@verb(
    Option("events", "number of events in a round", COUNT, default=400_000, subject="The number of events"),
    _rounds(5),
    Option("profile", "default or large-state; options behind a colon", default="default"),
    Option("at_least", "events/s of one core below which the exit code is 1", INTEGER, default=0),
)
def generator_speed(c: Context, **given: Any) -> None:
    """Measure how many NEXMark events per second one process makes on one core, as JSON and sent nowhere."""
    _module(c, "generators.nexmark.speed", given)


@verb(
    Option("seeds", "number of seeds, from 0 on", COUNT, default=1000, subject="The number of seeds"),
    Option("seed", "only this one", INTEGER, shown="all of them"),
    Option("jobs", "processes", COUNT, default=2, subject="The number of processes"),
)
def simulate(c: Context, **given: Any) -> None:
    """Simulate migrations under faults, all of a run drawn from its seed, until one goes wrong."""
    _module(c, "tests.simulation.simulate", given)
