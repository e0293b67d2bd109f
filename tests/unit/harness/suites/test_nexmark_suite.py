"""What `./inv nexmark` runs and prints, and what NEXMark options bench takes."""

import json

import numpy as np
import pytest

from generators.spec import GeneratorError
from harness.experiment.make import experiments_from, make_experiment
from harness.files import write_json
from harness.measure.cells import encode_cells
from harness.results.runfiles import RunFiles
from harness.run.load import preload, schedule
from harness.run.pipeline import disorder_ms
from harness.run.runs import needed_bytes
from harness.suites.nexmark import COLUMNS, against_native, markdown, rows_of, suite_from, table
from impls.errors import UsageError
from impls.mechanisms.native_spark.nexmark import TWINS
from impls.operators.nexmark import QUERIES
from impls.worker.cells import INTERVAL_US, make_cells
from plots.metrics import DASH, show


@pytest.mark.capability
def test_all_queries_run_with_their_twin_where_there_is_one():
    suite = suite_from({})
    assert [e.query for e in suite.experiments] == list(QUERIES)
    for experiment in suite.experiments:
        assert (experiment.workers, experiment.workers_goal, experiment.workload) == (2, 4, "nexmark")
        assert ("native-repartition" in experiment.mechanisms) == (experiment.query in TWINS)
        assert set(experiment.mechanisms) - {"native-repartition"} == {"megaphone-batched"}
    chosen = suite_from({"query": "q4, q8", "mechanism": "meces", "profile": "large-state:auctions=5000"})
    assert [(e.query, e.mechanisms) for e in chosen.experiments] == [("q4", ("meces",)), ("q8", ("meces",))]
    assert chosen.digest() != suite.digest()
    lasts_s = {e.query: e.duration_s for e in suite_from({"quick": True}).experiments}
    assert lasts_s["q11"] > lasts_s["q5"], "a session ends late"
    assert {e.duration_s for e in suite_from({"quick": True, "duration": "9"}).experiments} == {9.0}
    assert [e.seed for e in suite_from({"query": "q4,q6", "seed": "12"}).experiments] == [12, 12]
    (on_hosts,) = suite_from({"query": "q4", "cluster": "3", "netem": "delay 2ms"}).experiments
    assert (on_hosts.cluster, on_hosts.netem) == (3, "delay 2ms")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"workload": "nexmark", "query": "q23"}, "no NEXMark query 'q23'"),
        ({"workload": "dense", "query": "q4"}, "belong to --workload nexmark"),
        ({"workload": "nexmark", "query": "q5", "mechanism": "external-state"}, "no timers"),
        ({"workload": "nexmark", "value_bytes": "9"}, "leave out --value-bytes"),
        ({"workload": "nexmark", "profile": "huge"}, "default, large-state"),
        ({"workload": "nexmark", "out_of_order": "delay=1000"}, "delay"),
    ],
)
def test_bad_options_are_refused(options, says):
    with pytest.raises((UsageError, GeneratorError), match=says):
        experiments_from(options)


def test_every_query_has_a_twin_and_one_without_is_refused(monkeypatch):
    assert list(TWINS) == [query for query in QUERIES if query != "q12"], "nobody can say which window is right"
    monkeypatch.delitem(TWINS, "q4")
    with pytest.raises(UsageError, match="q4 has no twin"):
        experiments_from({"workload": "nexmark", "query": "q4", "mechanism": "native-restart"})
    (experiment,) = suite_from({"query": "q4"}).experiments
    assert "native-repartition" not in experiment.mechanisms


def test_more_auctions_than_sparks_own_queries_take_are_refused_and_left_out_of_the_suite():
    many = {"query": "q3,q4", "profile": "large-state:auctions=100001"}
    mechanisms = {e.query: e.mechanisms for e in suite_from(many).experiments}
    assert ["native-repartition" in mechanisms[query] for query in ("q3", "q4")] == [True, False]
    (few,) = suite_from({"query": "q6", "profile": "large-state:auctions=100000"}).experiments
    assert "native-repartition" in few.mechanisms
    with pytest.raises(
        UsageError, match="at most 100,000 auctions in flight, not 100,001: leave native-repartition out"
    ):
        suite_from({**many, "mechanism": "meces,native-repartition"})


def test_a_fault_leaves_out_what_has_no_fault_points():
    assert ["native-repartition" in e.mechanisms for e in suite_from({"query": "q3,q8"}).experiments] == [True, True]
    faulted = suite_from({"query": "q3,q8", "fault": "worker@migrating"}).experiments
    assert [e.mechanisms for e in faulted] == [("megaphone-batched",)] * 2


def test_live_queries_are_held_against_their_twins_by_a_median():
    def row(query, mechanism, p50_ms, verdict="valid"):
        return {"query": query, "mechanism": mechanism, "verdict": verdict, "p50_ms": p50_ms}

    live, twin = "megaphone-batched", "native-repartition"
    pairs = {"q1": (3.0, 2.0), "q2": (1.0, 2.0), "q9": (8.0, 10.0)}
    rows = [
        row(query, name, p50) for query, both in pairs.items() for name, p50 in zip((live, twin), both, strict=True)
    ]
    rows += [row("q3", live, 9.0), row("q8", live, 9.0), row("q8", twin, 1.0, "invalid")]
    rows += [row("q5", live, 9.0), row("q5", twin, 1.0)]  # the live one's figures are those of its first stage
    said = "0.80 times that of native-repartition (median of 3 queries of one stage, 0.50 to 1.50)"
    assert said in against_native(rows)
    assert not against_native(rows[6:])


def test_several_queries_are_an_experiment_each():
    found = experiments_from({"workload": "nexmark", "query": "q4,Q8", "rate": "1000"})
    assert [(e.query, e.name) for e in found] == [("q4", "nexmark-q4"), ("q8", "nexmark-q8")]
    assert [e.query for e in experiments_from({"workload": "nexmark"})] == ["q4"]
    assert [e.query for e in experiments_from({})] == [""]


def test_disorder_covers_groups_and_delays():
    def disorder(text):
        return disorder_ms(make_experiment(workload="nexmark", query="q5", rate="1000", out_of_order=text))

    assert disorder("") == 0
    assert disorder("group=50,probability=0") >= 49
    assert disorder("delay=0.7") == 700
    assert 749 <= disorder("group=50,delay=0.7") <= 760


def test_open_auctions_need_room():
    few, many = (
        make_experiment(workload="nexmark", query="q4", profile=f"large-state:auctions={n}") for n in (10**4, 10**6)
    )
    assert needed_bytes(many) - needed_bytes(few) > 900 * (10**6 - 10**4)


@pytest.mark.lengthy
def test_a_preload_that_cannot_be_sent_is_one_sentence(tmp_path):
    experiment = make_experiment(workload="nexmark", query="q4", profile="large-state:auctions=100", rate="100")
    with pytest.raises(UsageError, match="from before the start cannot be sent: "):
        preload(tmp_path, "127.0.0.1:1", experiment, "in")


def test_the_schedule_keeps_what_was_sent_before(tmp_path):
    sent = {"profile": "default", "out_of_order": "", "event_start_us": 5, "preload": 7}
    experiment = make_experiment(workload="nexmark", query="q4")
    assert schedule(tmp_path, experiment, "in", sent)["nexmark"] == sent
    assert "nexmark" not in schedule(tmp_path / "other", make_experiment(), "in")


def test_events_from_before_the_load_have_no_latency(tmp_path):
    start = 1_000 * INTERVAL_US
    write_json(tmp_path / "load.json", {"start_us": start, "nexmark": {"preload": 3}})
    cells, _ = make_cells(*arrivals(start))
    line = {"epoch": 0, "worker": 0, "done_us": start + 9, "cells": encode_cells(cells)}
    (tmp_path / "cells.jsonl").write_text(json.dumps(line) + "\n")
    assert RunFiles(tmp_path).cells.records == 2
    write_json(tmp_path / "load.json", {"start_us": start})
    assert RunFiles(tmp_path).cells.records == 5


def arrivals(start):
    scheduled = np.array([start - 4_000_000, start - 3_000_000, start - 2_000_000, start + 1, start + 2])
    return scheduled, start + 9, np.zeros(5, bool)


def entry(mechanism, **changed):
    steady = {"p50": 200.0, "p99": 300.0}
    migration = {"peak_ms": 310.0, "peak_ratio": 1.02, "duration_s": 1.5, "bytes": 50 << 20}
    return {"mechanism": mechanism, "verdict": "valid", "load": "met", "reasons": [], "latency_ms": {"steady": steady},
            "migrations": [migration]} | changed  # fmt: skip


def test_a_row_says_what_a_run_came_to():
    rows = rows_of("q3", {"runs": [entry("meces"), entry("none", migrations=[], load="late", verdict="unknown")]})
    text = markdown(rows)
    first, second = ([cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()[2:])
    assert first[:7] == ["q3", "flink-sql", "meces", "valid", "200 ms", "300 ms", "310 ms"]
    assert first[7:] == [show(1.02, "x"), "1.50 s", "50 MiB"]
    assert second == ["q3", "flink-sql", "none", "unknown, load late", "200 ms", "300 ms", *[DASH] * 4]
    assert table(rows).row_count == 2
    assert len(table(rows).columns) == len(COLUMNS)
