"""Tasks that measure one thing, each a module of its own that prints lines."""

import shlex
from typing import Any

from invoke.context import Context

from harness.cli.verb import run_module, verb
from harness.options.declared import COUNT, FLAG, INTEGER, Option
from harness.suites.options import DURABILITY, RECOVERY

__all__ = ["durability_cost", "generator_speed", "recovery_curve", "simulate"]


def _module(c: Context, module: str, options: dict[str, Any]) -> None:
    """Runs a module with the options that have a value."""
    given = {
        f"--{name.replace('_', '-')}": value
        for name, value in options.items()
        if value is not None and value is not False
    }
    words = [name if value is True else f"{name} {shlex.quote(str(value))}" for name, value in given.items()]
    run_module(c, f"{module} {' '.join(words)}")


@verb(*RECOVERY)
def recovery_curve(c: Context, **given: Any) -> None:
    """Measure how long a worker of a given size takes to be rebuilt from the checkpoint."""
    _module(c, "harness.suites.perf.recovery", given)


@verb(*DURABILITY)
def durability_cost(c: Context, **given: Any) -> None:
    """Measure what the changelog costs: the same load with durability none, process and host, interleaved."""
    _module(c, "harness.suites.perf.durability", given)


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
    Option("seeds", "number of seeds, from 0 on", COUNT, default=1000, subject="The number of seeds"),
    Option("seed", "only this one", INTEGER, shown="all of them"),
    Option("jobs", "processes", COUNT, default=2, subject="The number of processes"),
    Option("hosts", "on clusters of two to five hosts, which are lost, cut off and come back", FLAG),
    Option("mode", "micro-batch or real-time", default="micro-batch"),
)
def simulate(c: Context, **given: Any) -> None:
    """Simulate migrations under faults, all of a run drawn from its seed, until one goes wrong."""
    _module(c, "tests.simulation.simulate", given)
