"""Experiments from the options of a command: what is given, over what a preset says; bad input is refused."""

from collections.abc import Mapping
from typing import Any

from harness.experiment.checks import check
from harness.experiment.description import Experiment, shares_store
from harness.experiment.parameters import BENCH, MICRO_BATCH, PARAMETERS, QUICK, REAL_TIME, STANDARD
from harness.options import parse_list, parse_number
from harness.options.declared import read_given
from impls import catalog
from impls.errors import UsageError

_QUERY = "q4"
_CHOICES = ("mechanism", "all", "workload", "query", "profile", "fault", "value_bytes", "cost_us")
_NOT_IN_REAL_TIME = ("cluster", "master", "log_dir", "max_offsets_per_trigger")
_OTHERS = {option.name for option in BENCH} - {option.name for option in PARAMETERS}


def make_experiment(**given: Any) -> Experiment:
    """Builds an experiment from options or fields by name, and checks it; raises UsageError with one sentence."""
    values = read_given(PARAMETERS, given)
    if isinstance(workers := values.get("workers"), tuple):
        values = {**values, "workers": workers[0], "workers_goal": values.get("workers_goal", workers[1])}
    if isinstance(values.get("options"), str):
        values["options"] = mechanism_options(values["options"])
    if values.get("workers") != values.get("workers_goal"):
        values.setdefault("migration", "rescale")
    if values.get("workload") == "nexmark":
        values["query"] = values.get("query", _QUERY).strip().lower()
        values.setdefault("name", f"nexmark-{values['query']}")
    experiment = Experiment(**values)
    check(experiment)
    return experiment


def experiment_from(options: Mapping[str, Any]) -> Experiment:
    """Returns the experiment that the options of `./inv bench` describe; raises UsageError for bad ones.

    Without a choice of what to compare it is the standard comparison, which has Spark's own restart in it.
    """
    values = read_given(PARAMETERS, {name: value for name, value in options.items() if name not in _OTHERS})
    if options.get("all"):
        only = values.get("modes") == (REAL_TIME,)
        values["mechanisms"] = tuple(name for name in catalog.names() if not (only and shares_store(name)))
    standard = {} if any(options.get(name) for name in _CHOICES) else _standard(values)
    return make_experiment(**{**(QUICK if options.get("quick") else standard), **values})


def _standard(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the standard comparison, without real time where it is not asked for or cannot be had."""
    standard = {name: value for name, value in STANDARD.items() if "workers" not in values or name != "workers_goal"}
    modes = values.get("modes", STANDARD["modes"])
    if REAL_TIME in modes and not any(values.get(name) for name in _NOT_IN_REAL_TIME):
        return standard
    kept = tuple(name for name in STANDARD["mechanisms"] if catalog.mode_of(name) != REAL_TIME)
    return {**standard, "mechanisms": kept, "modes": (MICRO_BATCH,)}


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
