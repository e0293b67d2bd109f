"""Experiments from the options of a command: defaults, numbers read, and the checks that refuse bad input."""

from collections.abc import Callable, Mapping
from typing import Any

from harness.experiment.checks import check
from harness.experiment.description import DEFAULT_MECHANISMS, Experiment
from harness.options import parse_list, parse_number, parse_workers
from impls import catalog
from impls.errors import UsageError

__all__ = [
    "DEFAULT_QUERY",
    "QUICK",
    "STANDARD",
    "experiment_from",
    "experiments_from",
    "make_experiment",
    "mechanism_options",
    "typed",
]

DEFAULT_QUERY = "q4"
# What `./inv bench` compares when nothing is said of what to compare: all counting in an entry per key, as Spark does.
STANDARD: dict[str, Any] = {
    "mechanism": "none,native-repartition,runtime-restart,megaphone-all-at-once,megaphone-batched",
    "workload": "hash",
    "keys": 1_000_000,
    "duration_s": 30.0,
    "name": "hash-count",
}
QUICK: dict[str, Any] = {
    "mechanism": "none,megaphone-all-at-once,megaphone-batched",
    "keys": 400_000,
    "duration_s": 7.5,
    "lead_in_s": 3.0,
    "bins": 64,
    "name": "quick",
}
_RENAMED = {"duration": "duration_s", "bootstrap_servers": "bootstrap"}
_CHOICES = ("mechanism", "all", "workload", "query", "profile", "fault", "value_bytes", "cost_us")
_NUMBERS: dict[str, Callable[[str], Any]] = {
    "duration_s": float, "exponent": float, "cost_us": float, "value_bytes": int,
    "seed": int, "max_offsets_per_trigger": int
}  # fmt: skip


def make_experiment(**given: Any) -> Experiment:
    """Builds an experiment from command-line values and checks them; raises UsageError with one sentence."""
    values = {name: value for name, value in given.items() if value is not None}
    values["mechanisms"] = parse_list(str(values.pop("mechanism", ",".join(DEFAULT_MECHANISMS))))
    for name, what in (
        ("keys", "The number of keys"),
        ("rate", "The rate"),
        ("bins", "The number of bins"),
        ("rounds", "The number of rounds"),
    ):
        if name in values:
            values[name] = parse_number(values[name], what)
    if "workers" in values:
        values["workers"], values["workers_goal"] = parse_workers(values["workers"])
    if values.get("workers") != values.get("workers_goal") and "migration" not in values:
        values["migration"] = "rescale"
    if values.get("workload") == "nexmark":
        values["query"] = str(values.get("query", DEFAULT_QUERY)).strip().lower()
        values.setdefault("name", f"nexmark-{values['query']}")
    experiment = Experiment(**values)
    check(experiment)
    return experiment


def typed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Reads the options that are numbers; raises UsageError that names the option."""
    out = dict(values)
    for name, kind in _NUMBERS.items():
        if out.get(name) is not None:
            try:
                out[name] = kind(out[name])
            except ValueError:
                option = name.removesuffix("_s").replace("_", "-")
                raise UsageError(f"--{option} takes a number, not {out[name]!r}.") from None
    return out


def experiment_from(options: Mapping[str, Any]) -> Experiment:
    """Returns the experiment that the options of `./inv bench` describe; raises UsageError for bad ones.

    Without a choice of what to compare it is the standard comparison, which has Spark's own restart in it.
    """
    named = {_RENAMED.get(name, name): value for name, value in options.items() if value is not None}
    values = typed(
        {k: v for k, v in named.items() if k not in {"quick", "all", "output", "force", "resume", "metrics_port"}}
    )
    if options.get("all"):
        values["mechanism"] = ",".join(catalog.names())
    taken = mechanism_options(str(values.pop("option", "")))
    standard = {} if any(options.get(name) for name in _CHOICES) else STANDARD
    defaults = QUICK if options.get("quick") else standard
    return make_experiment(**{**defaults, **values, **({"options": taken} if taken else {})})


def experiments_from(options: Mapping[str, Any]) -> list[Experiment]:
    """Returns an experiment for each query named, or the one that has none; raises UsageError for bad options."""
    queries = parse_list(str(options.get("query") or ""))
    return [experiment_from({**options, "query": query}) for query in queries] or [experiment_from(options)]


def mechanism_options(text: str) -> dict[str, Any]:
    """Reads NAME=VALUE,NAME=VALUE into the mechanisms' options; raises UsageError for an unknown name or bad value."""
    kinds = {option: type(value) for name in catalog.every() for option, value in catalog.options(name).items()}
    taken: dict[str, Any] = {}
    for part in parse_list(text):
        name, _, value = part.partition("=")
        name = name.strip().replace("-", "_")
        if name not in kinds:
            raise UsageError(f"No mechanism has the option {name!r}: use one of {', '.join(sorted(kinds))}.")
        try:
            whole = kinds[name] is int and value.strip() != "0"
            taken[name] = parse_number(value, name) if whole else kinds[name](value)
        except ValueError:
            raise UsageError(f"The option {name} takes a {kinds[name].__name__}, not {value!r}.") from None
    return taken
