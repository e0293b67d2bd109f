"""Experiments from the options of a command, over what a preset says; bad input, or too little room, is refused."""

import re
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from generators.keys import make_keys
from generators.nexmark.profile import make_profile
from generators.producer import check_peak
from harness.experiment import schedules as migrations
from harness.experiment.description import Experiment, shares_store
from harness.experiment.parameters import BENCH, MICRO_BATCH, PARAMETERS, QUICK, REAL_TIME, STANDARD
from harness.experiment.schedules import DRIVER_POINTS, parse_fault
from harness.lab.hosts.settings import parse_netem
from harness.options import parse_list, parse_number
from harness.options.declared import read_given
from impls import catalog
from impls.addresses import has_secret, shown
from impls.durability.files import check_level
from impls.errors import UsageError
from impls.mechanisms.native_spark.nexmark import missing_twin
from impls.operators.nexmark import QUERIES, TimedQuery
from impls.placement import goal, initial
from impls.protocol.arrays import check_bins
from impls.spark.master import is_local

_DURATION = re.compile(r"[1-9]\d* (second|minute|hour)s?")
_INTERVAL = re.compile(r"([0-9]{1,2} second|[0-9]{1,4} millisecond)s?")
_BATCH = next(option.default for option in PARAMETERS if option.field == "batch")


def _check_modes(experiment: Experiment) -> None:
    """Raises UsageError for an experiment that names no mode, or has in real time what real time has not."""
    if not experiment.modes:
        raise UsageError("No mode is named: give micro-batch, real-time, or both.")
    compared = experiment.compared()
    left = [name for name in experiment.mechanisms if name not in {name for name, _ in compared}]
    if left:
        raise UsageError(f"{left[0]} has a store that all workers share, and no real-time mode: leave it out.")
    if all(mode != REAL_TIME for _, mode in compared):
        if experiment.slots is not None or experiment.batch != _BATCH:
            raise UsageError("--slots and --batch belong to --mode real-time.")
        return
    _check_spark()
    _check_place(experiment)
    _check_size(experiment)
    for name in experiment.mechanisms if experiment.workload == "nexmark" else ():
        if catalog.mode_of(name) == REAL_TIME and experiment.query not in (there := catalog.queries_of(name)):
            known = f"has of NEXMark's queries {' and '.join(there)} only" if there else "counts keys alone"
            raise UsageError(f"{name} {known}: leave it out.")


def _check_spark() -> None:
    found = version("pyspark")
    if tuple(map(int, re.findall(r"\d+", found)[:2])) < (4, 3):
        raise UsageError(f"Real-time mode needs Spark 4.3, and here is {found}: leave out --mode real-time.")


def _check_place(experiment: Experiment) -> None:
    if experiment.cluster is not None or not is_local(experiment.master):
        raise UsageError("Real-time mode runs in one process of Spark: leave out --cluster and --master.")
    if "://" in (experiment.log_dir or ""):
        raise UsageError("Real-time mode writes its changelog to a local folder: name one with --log-dir.")


def _check_size(experiment: Experiment) -> None:
    if not _DURATION.fullmatch(experiment.batch):
        raise UsageError(f"--batch is a duration such as '60 seconds' or '5 minutes', not {experiment.batch!r}.")
    if experiment.slots is not None and experiment.slots < experiment.workers:
        raise UsageError(f"{experiment.slots} slots are too few for {experiment.workers} workers: give as many.")
    if experiment.modes == (REAL_TIME,) and experiment.trigger != Experiment().trigger:
        raise UsageError("Real-time mode has no epochs to be apart: leave out --trigger.")
    if experiment.max_offsets_per_trigger is not None:
        raise UsageError("Real-time mode has no epochs to limit: leave out --max-offsets-per-trigger.")


_TIMED = frozenset(name for name, query in QUERIES.items() if issubclass(query, TimedQuery))
_PEER_FAULTS = ("worker@migrating", "broker@migrating")


def check(experiment: Experiment) -> None:
    """Raises UsageError for the first parameter that cannot be used."""
    for option in PARAMETERS:
        option.check(getattr(experiment, option.field))
    if not experiment.mechanisms:
        raise UsageError("No mechanism is named: give at least one of " + ", ".join(catalog.every()) + ".")
    for name in experiment.mechanisms:
        catalog.check(name)
    _check_modes(experiment)
    _check_options(experiment)
    _check_nexmark(experiment)
    check_bins(experiment.bins, experiment.most_workers)
    if experiment.keys < experiment.bins:
        raise UsageError(f"{experiment.keys} keys are too few for {experiment.bins} bins: give a key per bin.")
    _check_natives(experiment)
    own = (name for name in experiment.mechanisms if name in catalog.names())
    replicates = any(catalog.make(name, **catalog.known(name, experiment.options)).replicates for name in own)
    check_level(experiment.durability, replicates=replicates)
    _check_load(experiment)
    if not _INTERVAL.fullmatch(experiment.trigger):
        raise UsageError(
            f"--trigger is at most 99 seconds, such as '500 milliseconds' or '2 seconds', not {experiment.trigger!r}."
        )
    _check_cluster(experiment)
    make_keys(experiment.distribution, experiment.keys, experiment.exponent, experiment.seed)
    goal(experiment.policy, initial(experiment.bins, experiment.workers), experiment.workers_goal)
    for fault in experiment.faults:
        _check_fault(experiment, fault)
    migrations.plan_for(experiment)


def _check_nexmark(experiment: Experiment) -> None:
    plain = (experiment.query, experiment.profile, experiment.out_of_order) == ("", "default", "")
    if experiment.workload != "nexmark":
        if not plain:
            raise UsageError("--query, --profile and --out-of-order belong to --workload nexmark.")
        return
    if experiment.query not in QUERIES:
        raise UsageError(f"There is no NEXMark query {experiment.query!r}: use one of {', '.join(QUERIES)}.")
    if experiment.value_bytes or experiment.cost_us:
        raise UsageError("The workload nexmark has values and costs of its own: leave out --value-bytes and --cost-us.")
    make_profile(experiment.profile, experiment.rate, out_of_order=experiment.out_of_order)
    shared = [name for name in experiment.mechanisms if "redis" in catalog.options(name)]
    if shared and experiment.query in _TIMED:
        raise UsageError(f"{shared[0]} has no timers, which {experiment.query} needs: leave it out.")


def lacks_twin(experiment: Experiment) -> str:
    """Returns why a NEXMark experiment cannot be run in Spark's own API, "" if it can."""
    profile = make_profile(experiment.profile, experiment.rate)
    return missing_twin(experiment.query, profile.in_flight)


def _check_natives(experiment: Experiment) -> None:
    baselines = [name for name in experiment.mechanisms if name in catalog.baselines()]
    if baselines and experiment.workload == "dense":
        raise UsageError(f"{baselines[0]} counts in an entry per key, so all must: give --workload hash.")
    natives = [name for name in baselines if name in catalog.natives()]
    if natives and experiment.workload == "nexmark" and (why := lacks_twin(experiment)):
        raise UsageError(f"{why}: leave {natives[0]} out.")
    if baselines and (experiment.value_bytes or experiment.cost_us):
        raise UsageError(
            f"{baselines[0]} keeps counts alone and pays for no record: leave out --value-bytes and --cost-us."
        )
    if baselines and experiment.autoscale is not None:
        raise UsageError(f"{baselines[0]} has no workers that a policy could rescale: leave it out.")
    for fault in experiment.faults if baselines else ():
        _check_fault_of(baselines, fault)


def _check_fault_of(baselines: Sequence[str], fault: str) -> None:
    """Refuses a fault that baselines cannot have: none of their processes has points, and Spark's own are one."""
    natives = [name for name in baselines if name in catalog.natives()]
    if natives:
        raise UsageError(f"{natives[0]} has no fault points: leave it or --fault out.")
    if fault not in _PEER_FAULTS:
        raise UsageError(f"{baselines[0]} has no fault points: a fault of it is {' or '.join(_PEER_FAULTS)}.")


def _check_load(experiment: Experiment) -> None:
    check_peak(experiment.schedule())
    if not experiment.records:
        raise UsageError("The load has no record: the rates are 0 all the time.")
    if experiment.value_bytes and experiment.workload == "dense":
        raise UsageError("The workload dense keeps counts only: leave out --value-bytes, or use --workload hash.")


def _check_cluster(experiment: Experiment) -> None:
    if experiment.cluster is not None:
        taken = {"--master": experiment.master, "--state-dir": experiment.state_dir}
        for option in (name for name, value in taken.items() if value is not None):
            raise UsageError(f"A cluster of its own has what {option} names: leave out {option} or --cluster.")
    elif experiment.netem:
        raise UsageError("A network of its own needs a cluster of its own: give --cluster, or leave out --netem.")
    parse_netem(experiment.netem)
    if experiment.tls != "none" and experiment.cluster is None and is_local(experiment.master):
        raise UsageError("Bins are sealed between hosts only: give --cluster or --master, or leave out --tls.")
    if experiment.tls not in {"none", "auto"} and not Path(experiment.tls).is_file():
        raise UsageError(f"There is no file {experiment.tls}: --tls takes none, auto, or a PEM file.")


def _check_fault(experiment: Experiment, fault: str) -> None:
    victim, point, _ = given = parse_fault(fault)
    given.check_stage(two=experiment.workload == "nexmark" and QUERIES[experiment.query].second is not None)
    if experiment.migration == "none" or experiment.autoscale is not None:
        raise UsageError(
            "A fault needs a migration to happen in, and a schedule: leave out --fault, or change --migration."
        )
    if victim == "broker" and experiment.bootstrap is not None:
        raise UsageError("The fault's victim is the broker, which must then be this program's own: leave it out.")
    on_cluster = experiment.cluster is not None or not is_local(experiment.master)
    if on_cluster and (victim == "worker") == (point in DRIVER_POINTS):
        raise UsageError(
            "On a cluster a process can kill those of its own host only: let a worker die at a worker's point, others "
            f"at {', '.join(sorted(DRIVER_POINTS))}."
        )
    if point == "during-recovery":
        raise UsageError("The point 'during-recovery' comes with a lost environment: use ./inv fault-test.")


def _check_options(experiment: Experiment) -> None:
    """Raises UsageError for an option that no mechanism has, a value that it does not take, and for a password."""
    for option in experiment.options:
        takers = [name for name in experiment.mechanisms if option in catalog.options(name)]
        if not takers:
            raise UsageError(f"None of the mechanisms chosen has the option {option!r}.")
        for name in takers:
            catalog.check(name, **{option: experiment.options[option]})
    for place in (experiment.log_dir, *experiment.options.values()):
        if isinstance(place, str) and has_secret(place):
            raise UsageError(
                f"A result says what its parameters were, so the password in {shown(place)} would be in it: leave it "
                "out, and put credentials of a store, or Redis' as RESCALE_REDIS_PASSWORD, into the environment."
            )


_QUERY = "q4"
_CHOICES = ("mechanism", "all", "workload", "query", "profile", "fault", "value_bytes", "cost_us")
_NOT_IN_REAL_TIME = ("cluster", "master", "log_dir", "max_offsets_per_trigger")
_LOADS = ("quick", "rate", "rate_shape", "trigger", "cluster", "master", "bootstrap_servers")
_OTHERS = {option.name for option in BENCH} - {option.name for option in PARAMETERS}


def make_experiment(**given: Any) -> Experiment:
    """Builds an experiment from options or fields by name, and checks it; raises UsageError with one sentence."""
    return _made(read_given(PARAMETERS, given))


def _made(values: dict[str, Any]) -> Experiment:
    """Returns the experiment of values by field; raises UsageError for one that cannot be."""
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
    return _made({**(QUICK if options.get("quick") else standard), **values})


def names_no_load(options: Mapping[str, Any]) -> bool:
    """Returns whether options of `./inv bench` are those of the standard comparison on this machine alone, at no rate.

    The machine is then measured for its rate by what that comparison costs; of other keys, workers or durability than
    its own that is near enough.
    """
    return not any(options.get(name) for name in (*_CHOICES, *_LOADS))


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
