"""The comparison of engines: what is run, the figures of a row, what is concluded."""

import json
import re

import numpy as np
import pytest
from synthetic import write_run

from harness.experiment.make import make_experiment
from harness.experiment.schedules import plan_for
from harness.files import read_json, write_json
from harness.results.entry import ENTRY_FILE
from harness.suites.engines.floor import FLOOR, over_floor
from harness.suites.engines.page import CANNOT, COLUMNS, conclusions, notes, summary, texts, write_result
from harness.suites.engines.suite import cpu_s, longest_gap_s, row_of, suite_from
from impls.errors import UsageError
from plots.engines import load_of


def test_an_experiment_for_each_number_of_keys_with_all_engines_there_and_back():
    suite = suite_from({"keys": "20k,1M"})
    assert [experiment.keys for experiment in suite.experiments] == [20_000, 1_000_000]
    one = suite.experiments[0]
    assert {"megaphone-batched", "flink-adaptive", "kafka-streams-classic"} < set(one.mechanisms)
    assert [(command.at_s, command.workers) for command in plan_for(one)] == [(25.0, 4), (45.0, 2)]
    assert all(run.real_time for run in one.runs())


def test_with_a_fault_every_engine_that_can_have_one_runs_twice():
    (one,) = suite_from({"keys": "20k", "fault": "worker@migrating"}).experiments
    assert "native-real-time" not in one.mechanisms
    titles = {run.title for run in one.runs()}
    assert {"flink-adaptive", "flink-adaptive with worker@migrating"} < titles
    assert len(titles) == 2 * len(one.mechanisms)
    with pytest.raises(UsageError, match="native-real-time has no fault points"):
        suite_from({"keys": "20k", "fault": "worker@migrating", "mechanism": "native-real-time"})


def test_queries_are_compared_on_the_engines_that_run_them():
    five, eight = suite_from({"query": "q5,q8"}).experiments
    assert (five.query, eight.query, five.workload) == ("q5", "q8", "nexmark")
    assert five.mechanisms == ("megaphone-batched", "flink-adaptive", "flink-savepoint")
    assert set(eight.mechanisms) - set(five.mechanisms) == {"kafka-streams-classic", "kafka-streams-instance"}
    assert five.by_results
    (alone,) = suite_from({"query": "q5", "mechanism": "megaphone-batched"}).experiments
    assert alone.by_results, "a table says one thing, whoever is in it"
    with pytest.raises(UsageError, match=r"q7 has no event that completes a result: compare q5 or q8\."):
        suite_from({"query": "q5,q7"})
    with pytest.raises(UsageError, match="kafka-streams-classic has of NEXMark's queries q8 only"):
        suite_from({"query": "q5", "mechanism": "kafka-streams-classic"})


def test_each_load_is_compared_with_each_time_between_arrivals():
    suite = suite_from({"keys": "20k,1M", "arrivals": "10,1"})
    loads = [load_of({"keys": asked.keys, "arrivals_ms": asked.arrivals_ms}) for asked in suite.experiments]
    assert loads == [f"{keys} keys, every {ms} ms" for keys in ("20,000", "1,000,000") for ms in (10, 1)]
    with pytest.raises(UsageError, match="The time between arrivals"):
        suite_from({"arrivals": "0"})


def test_there_and_back_needs_two_numbers_of_workers():
    with pytest.raises(UsageError, match="needs another number of workers"):
        make_experiment(migration="there-and-back", workers="2", mechanism="none")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"workload": "dense"}, "counts in an entry per key"),
        ({"workload": "nexmark"}, "has of NEXMark's queries q5 and q8 only"),
        ({"workload": "hash", "cost_us": 5.0}, "pays for no record"),
        ({"workload": "hash", "fault": "worker@after-commit"}, "is worker@migrating or broker@migrating"),
        ({"workload": "hash", "fault": "jvm@migrating"}, "is worker@migrating or broker@migrating"),
        ({"workload": "hash", "migration": "autoscale:policy=ds2,min=1,max=4"}, "no workers that a policy"),
    ],
)
def test_what_another_engine_cannot_do_is_refused(given, why):
    with pytest.raises(UsageError, match=why):
        make_experiment(mechanism="flink-adaptive", workers="2:4", **given)


def test_the_longest_gap_is_that_around_a_rescale():
    done = np.array([1, 2, 3, 3, 7, 8, 20]) * 1_000_000
    assert longest_gap_s(done, 3_500_000, 4_000_000) == 4.0
    assert longest_gap_s(done, 8_500_000, 9_000_000) == 12.0
    assert longest_gap_s(done, 1_500_000, 2_500_000) == 1.0
    assert longest_gap_s(done, 21_000_000, 25_000_000) == 5.0  # the last result, and none behind the rescale
    assert longest_gap_s(done[-2:], 1_000_000, 9_000_000) == 12.0
    assert longest_gap_s(done[-1:], 5_000_000, 21_000_000) == 15.0, "none before, and none behind"
    assert longest_gap_s(done[:0], 0, 1) is None


def test_processor_time_does_not_fall_when_a_process_ends():
    samples = [{"cpu": {"own": own}} for own in (1_000_000, 3_000_000, 500_000, 1_500_000)]
    assert cpu_s([*samples, {"roles": {}}]) == 3.0


def test_processor_time_of_broker_and_generator_is_not_the_engines():
    samples = [{"cpu": {"own": 10 * n, "own_broker": 3 * n, "own_generator": n}} for n in (0, 100_000, 200_000)]
    assert cpu_s(samples) == 1.2


@pytest.mark.capability
def test_conclusions_are_drawn_from_valid_rows_of_the_same_keys():
    ours = "megaphone-batched, real time"

    def row(engine: str, peak: float, verdict: str = "valid", keys: int = 1_000) -> dict[str, object]:
        figures = {"p50_ms": 15.0, "p99_ms": None, "slow_s": 6.0 if engine == ours else 2.0}
        used = {"cpu_s_per_million": 200.0 if engine == ours else 100.0}
        return {"keys": keys, "engine": engine, "verdict": verdict, "peak_ms": peak, **figures, **used}

    rows = [row(ours, 50.0), row(ours, 150.0), row("flink-adaptive", 400.0), row("flink-adaptive", 1.0, "wrong")]
    (said,) = conclusions([*rows, row("flink-savepoint", 9.0, keys=5)])
    assert said == (
        "1,000 keys, this runtime against flink-adaptive: 0.25 times (0.12 to 0.38) its highest latency in a rescale, "
        "3.00 times its slow time in a rescale, 1.00 times its steady p50, 2.00 times its processor time."
    )


def test_a_figure_that_another_engine_never_had_has_no_ratio():
    rows = [
        {"keys": 9, "engine": engine, "verdict": "valid", "slow_s": slow, "peak_ms": 100.0}
        for engine, slow in (("megaphone-batched, real time", 2.0), ("flink-adaptive", 0.0), ("flink-savepoint", 4.0))
    ]
    assert summary(rows) == (
        "This runtime against each other engine: its highest latency in a rescale 1.00 to 1.00 times theirs, "
        "its slow time in a rescale 0.50 to 0.50 times theirs, or above 0 where theirs is 0."
    )
    never, half = (said.partition("rescale, ")[2] for said in reversed(conclusions(rows)))
    assert (half, never) == (
        "above 0 against 0 of its slow time in a rescale.",
        "0.50 times its slow time in a rescale.",
    )
    assert "slow time in a rescale above 0 where theirs is 0." in summary(rows[:2])


def test_figures_are_also_told_over_the_floor_at_the_same_load():
    def row(engine, p50, cpu, keys=1_000, verdict="valid"):
        at = {"keys": keys, "query": "", "arrivals_ms": 10}
        return {**at, "engine": engine, "p50_ms": p50, "cpu_s_per_million": cpu, "verdict": verdict}

    rows = over_floor([
        row("flink-adaptive", 30.0, 50.0), row(FLOOR, 10.0, 20.0), row(FLOOR, 14.0, 30.0), row(FLOOR, 1.0, 1.0, keys=5),
        row(FLOOR, 1.0, 1.0, verdict="unknown"), row("flink-adaptive", 30.0, 50.0, keys=7), row("x", None, None),
    ])  # fmt: skip
    assert [one["p50_floor"] for one in rows] == pytest.approx([2.5, 10 / 12, 14 / 12, 1.0, 1 / 12, None, None])
    assert [one["cpu_floor_percent"] for one in rows[:2]] == [200.0, 80.0]
    with pytest.raises(UsageError, match="kafka-floor counts keys alone"):
        suite_from({"query": "q5", "mechanism": "kafka-floor"})
    assert all(FLOOR in one.mechanisms for one in suite_from({"keys": "20k"}).experiments)


def test_what_spark_works_off_before_a_repartition_is_a_time_of_its_own(tmp_path):
    folder = tmp_path / "runs" / "00"
    write_run(folder, mechanism="runtime-restart", seconds=18, rate=200)
    entry, oracle = read_json(folder / ENTRY_FILE), read_json(folder / "oracle.json")
    write_json(folder / "oracle.json", {**oracle, "repeats": 0})
    first = entry["migrations"][0]
    assert [row["drain_s"] for row in row_of({"keys": 9}, entry, folder)] == [None, None]
    with (folder / "events.jsonl").open("a") as file:
        file.write(json.dumps({"kind": "epoch_finished", "id": first["id"], "seconds": 0.25, "at_us": 0}) + "\n")
    rows = row_of({"keys": 9}, entry, folder)
    assert [row["drain_s"] for row in rows] == [0.25, None]
    assert dict(zip(COLUMNS, texts(rows[0]), strict=True))["of it drain"] == "0.25 s"
    assert any("`of it drain`" in note for note in notes(rows))
    assert not any("`of it drain`" in note for note in notes(rows[1:]))


def test_what_a_fault_befell_is_compared_with_what_it_befell_too():
    fault = " with worker@migrating"
    names = {"megaphone-batched, real time": 10.0, "flink-adaptive": 20.0}
    figures = {"keys": 9, "verdict": "valid", "p50_ms": None, "p99_ms": None}
    rows = [
        {**figures, "engine": name + more, "peak_ms": peak * factor}
        for name, peak in names.items()
        for more, factor in (("", 1), (fault, 4 if name in "flink-adaptive" else 1))
    ]
    assert [said.partition(": ")[2][:10] for said in conclusions(rows)] == ["0.50 times", "0.12 times"]


@pytest.mark.lengthy
def test_the_page_has_each_row_each_figure_and_what_cannot_be_seen(tmp_path):
    engines, rescales = (
        ["megaphone-batched, real time", "flink-adaptive", "kafka-streams-classic"],
        ["2 to 4", "4 to 2"],
    )
    figures = {
        "p50_ms": 9.0, "p99_ms": 30.0, "p999_ms": 41.0, "peak_ms": 400.0, "slow_s": 1.0, "gap_s": 0.5, "held_s": 2.0,
        "lost": 0, "doubled": 0, "repeats": 7, "cpu_s_per_million": 88.0, "memory_mib": 900.0,
    }  # fmt: skip
    figures |= {"commit": "fedcba9876543210"}
    rows = [
        {"keys": keys, "engine": engine, "round": 0, "rescale": what, "verdict": "valid", **figures}
        for keys in (1_000_000, 4_000_000) for engine in engines for what in rescales
    ]  # fmt: skip
    rows[-1] |= {"verdict": "wrong", "peak_ms": None}
    line = {"round": 0, "at_s": [0.0, 0.25, 0.5], "max_ms": [9.0, 400.0, 12.0], "rescales": [[0.2, 0.4]]}
    lines = [{"keys": keys, "engine": engine, **line} for keys in (1_000_000, 4_000_000) for engine in engines]
    write_json(
        tmp_path / "experiment.json", {"environment": {"commit": "0123456789abcdef", "dirty": False, "cores": 2}}
    )
    write_result(tmp_path, rows, lines)
    page = (tmp_path / "engines.html").read_text()
    assert page.count("<tr") == 1 + len(rows)
    assert page.count('<tr class="withheld">') == 1
    assert page.count("<svg") == 4
    assert CANNOT in page
    assert "4,000,000 keys, this runtime against flink-adaptive: 1.00 times" in page
    told = (tmp_path / "engines.md").read_text()
    shown = re.findall(r"\]\((figures/[^)]+)\)", told)
    assert len(shown) == 4
    assert all((tmp_path / name).is_file() for name in shown)
    assert told.count("| fedcba987654 |") == len(rows) + len(rows) // 2, "each row says at which commit it was measured"
    assert page.count(">fedcba987654<") == len(rows)
    rescales_and_runs = (1 + len(rows)) + (1 + len(rows) // 2)
    assert told.count("\n| ") == rescales_and_runs
    unmeasured = dict.fromkeys(("p50_ms", "p99_ms", "p999_ms", "peak_ms", "slow_s", "gap_s", "held_s"))
    write_result(tmp_path, [row | unmeasured for row in rows], lines)
    assert (tmp_path / "engines.html").read_text().count("<svg") == 2, "latency over time, for each number of keys"
    write_result(tmp_path, [row | unmeasured for row in rows], [{**one, "at_s": [], "max_ms": []} for one in lines])
