"""An option of an experiment is declared once: parser, help, checks, JSON and schema come from the field."""

import json
from dataclasses import fields, replace

import pytest
from jsonschema import Draft202012Validator

import tasks
from generators.keys import EXPONENT_MAX
from harness.cli.verb import Verb
from harness.experiment.description import Experiment
from harness.experiment.make import experiment_from, make_experiment
from harness.experiment.parameters import BENCH, PARAMETERS, PRESETS
from harness.options.declared import BYTES, COUNT, INTEGER, POWER, REAL, WORKERS, Option
from harness.results.summary import read_schema
from harness.suites.options import SCALE
from harness.suites.scale.scenario import Scenario
from impls.durability.files import LEVELS
from impls.errors import UsageError
from impls.operators.keycount import COSTS, VALUE_BYTES_MAX
from impls.protocol.arrays import MAX_BINS

GROUPS = ["What to run", "Load", "Cluster", "Output"]
NUMBERS = {COUNT, INTEGER, POWER, REAL, WORKERS}
KNOWN = {option.field: option for option in PARAMETERS}
OTHER = {  # a value of each parameter that is not its default, and fits the others
    "mechanisms": ("meces", "megaphone-batched"), "options": {"bins_per_pair": 2}, "workload": "hash", "query": "",
    "value_bytes": 16, "cost_us": 2.5, "cost": "compute", "migration": "rebalance", "fault": "worker@migrating",
    "rounds": 2, "seed": 7, "keys": 5_000, "distribution": "zipf", "exponent": 0.5, "rate": 2_000,
    "rate_shape": "sine:period=30", "profile": "default", "out_of_order": "", "duration_s": 9.0, "lead_in_s": 1.5,
    "latency_of": "results",
    "arrivals_ms": 40.0, "workers": 2, "workers_goal": 8, "bins": 64, "policy": "contiguous", "durability": "host",
    "trigger": "1 second",
    "max_offsets_per_trigger": 500, "input_partitions": 3, "result_partitions": 5, "bootstrap": "somewhere:9092",
    "master": "local[3]", "archive": "none", "cluster": 3, "netem": "delay 2ms", "tls": "auto",
    "state_dir": "somewhere", "log_dir": "s3://bucket/somewhere", "name": "other",
    "modes": ("real-time", "micro-batch"), "batch": "60 seconds", "slots": 9,
}  # fmt: skip


@pytest.mark.parametrize("option", PARAMETERS, ids=lambda option: option.field)
def test_every_field_declares_what_its_user_must_know(option):
    assert option.help
    assert not option.help.endswith(".")
    assert option.group in GROUPS
    assert option.default is not None or option.shown, "help has no default to show"
    if option.kind in NUMBERS:
        assert option.subject
        assert option.least is not None, "a number has bounds"
    if option.choices:
        assert option.subject
        assert set(option.default if isinstance(option.default, tuple) else [option.default]) <= set(option.choices)
        assert all(choice in option.help for choice in option.choices[1:]), "help says what each choice is"
    if option.default is not None and not isinstance(option.default, str | dict | tuple):
        option.check(option.default)


def test_the_task_has_exactly_the_options_of_the_fields_and_those_of_every_suite():
    names = [argument.attr_name or argument.name for argument in tasks.bench.get_arguments()]
    own = [option.name for option in PARAMETERS if option.own]
    assert sorted(names) == sorted([*own, "all", "quick", "output", "force", "resume", "metrics_port"])
    assert {f.name for f in fields(Experiment)} - {o.field for o in BENCH} == {"workers_goal", "latency_of"}
    assert all(not argument.nicknames for argument in tasks.bench.get_arguments())


def test_what_a_suite_takes_of_an_experiment_is_the_experiment_s_option():
    for task in (tasks.sweep, tasks.nexmark, tasks.regress):
        assert isinstance(task, Verb)
        shared = [option for option in task.options if option.field]
        assert len(shared) >= 4
        for option in shared:
            assert (option.name, option.unit, option.group) == (
                KNOWN[option.field].name, KNOWN[option.field].unit, KNOWN[option.field].group
            )  # fmt: skip


def test_the_simulator_shows_the_defaults_that_it_has():
    shown = {option.field: option for option in SCALE if option.field and option.field not in {"mechanisms", "options"}}
    assert {name: option.default for name, option in shown.items()} == {
        name: getattr(Scenario(), name) for name in shown
    }
    assert shown["state_bytes"].kind.read(shown["state_bytes"].shown, shown["state_bytes"]) == Scenario().state_bytes
    assert shown["state_bytes"].kind == BYTES


def test_choices_and_bounds_are_those_of_what_carries_them_out():
    assert (KNOWN["cost"].choices, KNOWN["durability"].choices) == (COSTS, LEVELS)
    assert (KNOWN["value_bytes"].most, KNOWN["bins"].most) == (VALUE_BYTES_MAX, MAX_BINS)
    assert KNOWN["exponent"].most == EXPONENT_MAX


def test_presets_are_values_of_fields():
    for preset in PRESETS.values():
        assert set(preset) <= set(KNOWN)
        assert make_experiment(**preset) == replace(Experiment(), **preset)


def test_all_parameters_survive_json_and_their_schema_takes_them():
    experiment = Experiment(**OTHER)
    same = {"query", "profile", "out_of_order"}  # which belong to nexmark
    assert {f.name for f in fields(Experiment) if getattr(experiment, f.name) == getattr(Experiment(), f.name)} == same
    data = json.loads(json.dumps(experiment.to_json()))
    assert Experiment.from_json(data) == experiment
    assert Experiment.from_json(json.loads(json.dumps(Experiment().to_json()))) == Experiment()
    schema = read_schema()["properties"]["experiment"]
    assert set(schema["properties"]) == set(data)
    for known in (data, json.loads(json.dumps(Experiment().to_json()))):
        Draft202012Validator(schema).validate(known)


@pytest.mark.parametrize(
    ("field", "value"), [("bins", 1), ("keys", 0), ("seed", "1"), ("workload", "wordcount"), ("mechanisms", "none"),
                         ("duration_s", 2.9), ("fault", 3), ("cost_us", 1e7), ("slots", 0)],
)  # fmt: skip
def test_the_schema_refuses_what_an_experiment_cannot_have(field, value):
    data = json.loads(json.dumps(Experiment(**OTHER).to_json()))
    errors = Draft202012Validator(read_schema()["properties"]["experiment"]).iter_errors({**data, field: value})
    assert [list(error.absolute_path) for error in errors] == [[field]]


@pytest.mark.parametrize("option", [o for o in PARAMETERS if o.least is not None], ids=lambda option: option.field)
def test_a_value_out_of_bounds_is_refused_with_the_bounds_however_it_is_given(option):
    values = [option.least - 1] if option.most is None else [option.least - 1, option.most + 1]
    for value in values:
        for given in ({option.name: str(value)}, {option.field: value}):
            with pytest.raises(UsageError) as caught:
                make_experiment(**given)
            said = str(caught.value)
            assert said.startswith(option.subject)
            assert f"from {option.least:.0f}" in said or f"at least {option.least:g}" in said
            assert "\n" not in said
        with pytest.raises(UsageError, match=option.subject):
            option.check(value)


def test_bins_are_sealed_between_hosts_only_and_a_certificate_must_be_there(tmp_path):
    assert make_experiment(cluster="2", tls="auto").tls == "auto"
    with pytest.raises(UsageError, match="give --cluster or --master, or leave out --tls"):
        make_experiment(tls="auto")
    with pytest.raises(UsageError, match=r"There is no file .*nowhere\.pem"):
        make_experiment(cluster="2", tls=str(tmp_path / "nowhere.pem"))


@pytest.mark.parametrize(
    "given",
    [
        {"log_dir": "s3://KEY:hidden@bucket/a"},
        {"mechanism": "external-state", "options": "redis=redis://:hidden@h:6379/0"},
    ],
)
def test_a_password_that_would_be_in_the_result_is_refused_without_being_said(given):
    with pytest.raises(UsageError, match="leave it out, and put credentials") as error:
        make_experiment(**given)
    assert "hidden" not in str(error.value)


def test_bounds_are_included_and_nothing_that_is_no_number_is_taken():
    for option in (KNOWN["cost_us"], KNOWN["value_bytes"], KNOWN["exponent"]):
        assert [option.read(option.least), option.read(option.most)] == [option.least, option.most]
    for text in ("nan", "inf"):
        with pytest.raises(UsageError, match="at least 3 seconds, not"):
            make_experiment(duration=text)


def test_options_are_known_by_their_name_and_by_their_field_and_by_no_other():
    assert make_experiment(duration="9", mechanism="none") == make_experiment(duration_s=9.0, mechanisms=("none",))
    assert experiment_from({"lead_in": "2", "input_partitions": "3"}).lead_in_s == 2.0
    with pytest.raises(UsageError, match="no option 'durations'"):
        make_experiment(durations="9")


def test_what_is_read_is_read_again_as_it_is():
    for option in (*BENCH, Option("plain", "text")):
        if option.default is not None:
            once = option.read(option.default)
            assert option.read(once) == once
