"""The load of a comparison that names none: what a machine carries, kept for later comparisons and for --resume."""

from dataclasses import asdict, replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness.experiment.make import experiments_from, names_no_load
from harness.files import read_json, write_json
from harness.measure import cpu
from harness.measure.speed import Stretch, measure
from harness.results.entry import ENTRY_FILE
from harness.results.place import find_earlier
from harness.suites import load
from harness.suites.bench import prepare_runs, run_bench
from harness.suites.load import PROBE_FILE, RATES, Probe, load_for, probe_of, stored_probe
from impls.errors import UsageError

FAST, SLOW = Probe(200_000.0, 64.0, 0.0), Probe(90_000.0, 1.0, 0.0)
MACHINES = {"speed": st.floats(1.0, 1e7), "processors": st.floats(0.01, 512.0), "busy": st.floats(0.0, 1.0)}


@given(**MACHINES, faster=st.floats(1.0, 10.0), calmer=st.floats(0.0, 1.0))
@example(speed=1e7, processors=512.0, busy=0.0, faster=1.0, calmer=1.0)
def test_a_better_machine_has_no_lower_rate_and_none_is_off_the_ladder(speed, processors, busy, faster, calmer):
    rate = Probe(speed, processors, busy).rate
    assert rate in RATES
    assert rate <= 10_000
    assert Probe(speed * faster, processors, busy).rate >= rate
    assert Probe(speed, processors * faster, busy).rate >= rate
    assert Probe(speed, processors, busy * calmer).rate >= rate


@given(**MACHINES)
def test_a_machine_with_less_than_a_third_idle_has_the_lowest_rate_and_says_so(speed, processors, busy):
    found = Probe(speed, processors, busy)
    assert found.fits or found.rate == RATES[-1]
    assert not (found.fits and busy > 2 / 3)


S = 1_000_000


def spent(used, own, idle, steal=0):
    return {"used": used * S, "own": own * S, "idle": idle * S, "steal": steal * S}


@pytest.mark.parametrize(
    ("cpu_s", "quiet", "full", "processors", "busy"),
    [
        ((2.0, 2.0), spent(0, 0, 2), spent(4, 4, 0), 2.0, 0.0),
        ((2.0, 2.0), None, None, 2.0, 0.0),  # a system that does not tell
        ((1.3, 1.3), spent(1, 0, 1), spent(4, 2.6, 0), 2.0, 0.5),  # another process has a processor
        ((1.0, 1.0), spent(0, 0, 2), spent(2, 2, 2), 1.0, 0.0),  # a quota of one processor
        ((1.0, 1.0), spent(0, 0, 1.5, 0.5), spent(2, 2, 0, 2), 1.0, 0.25),  # the hypervisor takes half of them
        ((2.0, 2.0), spent(0, 0, 2), spent(5, 4, 0), 2.0, 0.0),  # sums that are not of one moment
    ],
)
def test_what_others_use_is_of_the_machine_and_not_of_its_speed(cpu_s, quiet, full, processors, busy):
    found = probe_of([Stretch(round(100_000 * seconds), seconds) for seconds in cpu_s], quiet, full)
    assert (found.speed, found.processors, found.busy) == pytest.approx((100_000, processors, busy))


def test_a_counter_counts_blocks_until_its_time_is_over(tmp_path):
    told, epochs = [], iter([0.0, 0.0, 1.0, 2.0])
    found = measure(
        tmp_path / "state", 2.0, lambda: told.append(1), wall=lambda: next(epochs), cpu=iter([1.0, 1.5]).__next__
    )
    assert (found, told) == (Stretch(2 * 4096, 0.5), [1])


@pytest.mark.parametrize(
    ("options", "probed"),
    [
        ({}, True),
        ({"rounds": "3", "keys": "100k", "force": True, "resume": True, "mode": "micro-batch"}, True),
        ({"rate": "2000"}, False),
        ({"rate_shape": "step:10=5"}, False),
        ({"trigger": "5 seconds"}, False),
        ({"quick": True}, False),
        ({"all": True}, False),
        ({"mechanism": "meces"}, False),
        ({"workload": "nexmark", "query": "q4,q8"}, False),
        ({"cluster": "2"}, False),
        ({"master": "spark://host:7077"}, False),
        ({"bootstrap_servers": "host:9092"}, False),
    ],
)
def test_the_standard_comparison_on_this_machine_is_probed_where_it_names_no_rate(options, probed):
    assert names_no_load(options) is probed


@pytest.fixture
def probes(monkeypatch):
    """The probes that the machine will show, one after another."""
    left = [FAST]
    monkeypatch.setattr(load, "probe", lambda: left.pop(0))
    return left


@pytest.fixture
def experiment():
    return experiments_from({})[0]


def begun(experiment, output, *, done, number=0):
    folder = output / f"2026010{number}-000000-hash-count"
    folder.mkdir()
    prepare_runs(experiment, [], folder, experiment.seed)
    if done:
        (folder / "done").touch()
    return folder


def test_the_first_probe_holds_until_a_new_result_is_forced(tmp_path, probes, experiment):
    probes[:] = [FAST, SLOW]
    first = load_for(experiment, tmp_path)
    assert first.rate == FAST.rate == 10_000
    assert (
        first.sentence
        == "This machine (64.0 processors, 0% busy with other work): 10,000 records/s (--rate overrides)."
    )
    again = load_for(experiment, tmp_path)
    assert (again.rate, len(probes)) == (first.rate, 1)
    assert "--force probes anew" in again.sentence
    assert load_for(experiment, tmp_path, force=True).rate == SLOW.rate < first.rate
    assert load_for(experiment, tmp_path).rate == SLOW.rate
    assert not probes


def test_an_earlier_finished_result_is_there_again_whatever_a_probe_would_say(tmp_path, probes, experiment):
    probes[:] = [SLOW, FAST]
    made = load_for(experiment, tmp_path).of(experiment)
    folder = begun(made, tmp_path, done=True)
    again = load_for(experiment, tmp_path).of(experiment)
    assert find_earlier(again, tmp_path, finished=True) == folder
    assert probes == [FAST]


def test_an_unfinished_result_is_resumed_at_its_own_rate_though_another_was_probed_since(tmp_path, probes, experiment):
    probes[:] = [SLOW, FAST]
    cut_off = begun(load_for(experiment, tmp_path).of(experiment), tmp_path, done=False, number=1)
    begun(load_for(experiment, tmp_path, force=True).of(experiment), tmp_path, done=True, number=2)
    begun(replace(experiment, keys=99_999, rate=3_000), tmp_path, done=False, number=3)
    found = load_for(experiment, tmp_path, resume=True)
    assert found.rate == SLOW.rate
    assert f"{SLOW.rate:,} records/s" in found.sentence
    assert find_earlier(found.of(experiment), tmp_path, finished=False) == cut_off
    assert found.trigger == SLOW.trigger == "1 second" != FAST.trigger


def test_the_newest_unfinished_result_is_resumed_at_its_own_load(tmp_path, probes, experiment):
    begun(load_for(experiment, tmp_path).of(experiment), tmp_path, done=False, number=1)
    begun(replace(experiment, rate=1_234), tmp_path, done=False, number=2)
    assert load_for(experiment, tmp_path, resume=True).rate == 1_234
    assert load_for(experiment, tmp_path / "empty", resume=True).rate == experiment.rate, (
        "nothing is there to probe for"
    )


def test_a_result_with_a_run_on_a_busy_machine_is_resumed_though_its_probe_was_not_kept(tmp_path, probes, experiment):
    probes[:] = [replace(SLOW, busy=0.5)]
    made = load_for(experiment, tmp_path).of(experiment)
    folder = begun(made, tmp_path, done=True, number=1)
    for number, run in enumerate(made.runs()):
        place = folder / "runs" / run.folder
        place.mkdir(parents=True)
        write_json(place / ENTRY_FILE, {"machine": "quiet" if number else "busy"})
    found = load_for(experiment, tmp_path, resume=True)
    assert found.of(experiment) == made
    assert not probes


@pytest.mark.parametrize(
    ("name", "text", "processors"),
    [
        ("cpu.max", "50000 100000", 0.5), ("cpu.max", "max 100000", None), ("cpu.cfs_quota_us", "150000", 1.5),
        ("cpu.cfs_quota_us", "-1", None), ("other", "", None),
    ],
)  # fmt: skip
def test_a_quota_is_of_the_machine(tmp_path, monkeypatch, name, text, processors):
    (tmp_path / name).write_text(text)
    (tmp_path / "cpu.cfs_period_us").write_text("100000")
    monkeypatch.setattr(cpu, "_throttle_file", lambda: tmp_path / "cpu.stat")
    assert cpu.quota() == processors


def test_a_probe_beside_other_work_is_not_kept(tmp_path, probes, experiment):
    probes[:] = [replace(FAST, busy=0.5), FAST]
    assert "50% busy" in load_for(experiment, tmp_path).sentence
    assert stored_probe(tmp_path) is None
    assert "0% busy" in load_for(experiment, tmp_path).sentence


def test_epochs_are_apart_where_they_would_use_all_there_is(tmp_path, probes, experiment):
    probes[:] = [SLOW]
    made = load_for(experiment, tmp_path)
    assert made.of(experiment).trigger == "1 second"
    assert "records/s, epochs 1 second apart" in made.sentence
    assert [Probe(1e5, number, 0.0).trigger for number in (1.0, 1.9, 2.0)] == ["1 second", "0 seconds", "0 seconds"]


@pytest.mark.parametrize("broken", ["", "[]", "{", '{"speed": "much"}'])
def test_a_broken_probe_is_made_anew(tmp_path, probes, experiment, broken):
    (tmp_path / PROBE_FILE).write_text(broken)
    assert load_for(experiment, tmp_path).rate == FAST.rate
    assert stored_probe(tmp_path) == FAST


def test_the_probe_of_another_machine_is_none_of_this_one(tmp_path, probes, experiment):
    load_for(experiment, tmp_path)
    stored = read_json(tmp_path / PROBE_FILE)
    write_json(tmp_path / PROBE_FILE, {**stored, **asdict(SLOW), "machine": {**stored["machine"], "cpu": "another"}})
    assert stored_probe(tmp_path) is None


def test_a_probe_that_cannot_be_kept_is_refused_with_its_file(tmp_path, probes, experiment):
    with pytest.raises(UsageError, match=r"probe\.json cannot be written"):
        load_for(experiment, tmp_path / "missing")


def test_a_rate_that_is_given_skips_the_probe(tmp_path, monkeypatch, capsys):
    seen = []
    monkeypatch.setattr("harness.suites.bench.check_machine", lambda *_: None)
    monkeypatch.setattr("harness.suites.bench.ensure_jars", lambda: None)
    monkeypatch.setattr("harness.suites.bench.print_comparison", lambda _: None)
    monkeypatch.setattr("harness.suites.bench.bench", lambda made, *_, **__: (seen.append(made.rate), (tmp_path, 0))[1])
    monkeypatch.setattr(load, "probe", lambda: SLOW)
    assert run_bench({"output": str(tmp_path), "rate": "7000"}) == 0
    assert not (tmp_path / PROBE_FILE).exists()
    assert run_bench({"output": str(tmp_path)}) == 0
    assert seen == [7_000, SLOW.rate]
    assert capsys.readouterr().out.count("--rate overrides") == 1
