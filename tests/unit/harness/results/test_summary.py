"""result.json says what the run folders hold, withholds what is not valid, and obeys its schema."""

import json
import shutil

import jsonschema
import numpy as np
import pytest
from synthetic import BIN_BYTES, MECHANISMS, MOVED_BINS, write_experiment, write_run

from harness.files import JsonLines, read_json, read_lines, write_json
from harness.measure.cells import encode_cells, read_cells
from harness.results.entry import summarise_run
from harness.results.machine import describe_machine
from harness.results.summary import SCHEMA, read_schema, validate, write_result
from impls.errors import UsageError
from impls.worker.cells import make_cells

SECONDS, RATE = 18, 1_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("results") / "20260101-000000-synthetic"
    path.mkdir()
    write_experiment(path, seconds=SECONDS, rate=RATE, rounds=1)
    return path


@pytest.fixture(scope="module")
def runs(folder):
    return {run["mechanism"]: run for run in validate(folder)["runs"]}


@pytest.fixture
def run_folder(tmp_path):
    """A run's folder, not summarised yet, for a test to spoil."""
    path = tmp_path / "runs" / "00-megaphone-batched-r0"
    write_run(path, mechanism="megaphone-batched", seconds=12, rate=200, summarise=False)
    return path


def edit(path, **changes):
    write_json(path, {**read_json(path), **changes})


def test_schema_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(read_schema())


@pytest.mark.lengthy
def test_all_runs_are_valid_and_counted_in_full(runs):
    assert list(runs) == list(MECHANISMS)
    for run in runs.values():
        assert (run["verdict"], run["load"], run["withheld"], run["reasons"]) == ("valid", "met", False, [])
        tagged = [run["latency_ms"][tag]["count"] for tag in ("warmup", "steady", "migrating", "after")]
        assert sum(tagged) == run["generator"]["records"] == SECONDS * RATE
        assert sum(row["records"] for row in run["timeline"]) == SECONDS * RATE


def test_warm_up_is_found_and_stated(runs):
    for run in runs.values():
        assert 2.0 <= run["warmup_s"] < 3.0
        assert run["warmup"]["rule"].startswith("Warm-up ends")


def test_steady_latency_is_that_of_the_epochs(runs):
    """A record waits for the epoch under way, 203 ms, and then for its own."""
    for run in runs.values():
        steady = run["latency_ms"]["steady"]
        assert 180 < steady["p50"] < 340
        assert 380 < steady["max"] < 470
        assert steady["p50"] <= steady["p90"] <= steady["p99"] <= steady["p999"] <= steady["max"]
        assert run["epoch_ms"]["steady"]["p50"] == pytest.approx(203, rel=0.03)
        assert run["epoch_ms"]["steady"]["phases"]["observe"]["max"] == 2.0


def test_migrations_say_what_was_moved(runs):
    assert runs["none"]["migrations"] == []
    for name, epochs in {
        "runtime-restart": 1,
        "megaphone-all-at-once": 1,
        "megaphone-fluid": 16,
        "megaphone-batched": 4,
    }.items():
        for migration in runs[name]["migrations"]:
            assert (migration["bins"], migration["bytes"]) == (MOVED_BINS, MOVED_BINS * BIN_BYTES)
            moves = [
                migration[n] for n in ("required_bins", "required_bytes", "moved_bins_minimum", "moved_bytes_minimum")
            ]
            assert moves == [MOVED_BINS, MOVED_BINS * BIN_BYTES, MOVED_BINS // 2, MOVED_BINS * BIN_BYTES // 2]
            assert migration["epochs"] == epochs
            assert 0 < migration["duration_s"] <= migration["end_s"] - migration["begin_s"]
            assert migration["peak_window_s"] > 0
            assert migration["peak_windows"] >= 3
    pulls = {name: run["migrations"][0]["longest_pull_ms"] for name, run in runs.items() if run["migrations"]}
    assert pulls == dict(zip(MECHANISMS[1:], (500.0, 900.0, 20.0, 40.0), strict=True))


def test_a_spike_shows_in_every_measure(runs):
    calm, loud = runs["megaphone-fluid"]["migrations"][0], runs["megaphone-all-at-once"]["migrations"][0]
    assert 900 < loud["peak_ms"] < 1_400
    assert 2.5 < loud["peak_ratio"] < 3.6
    assert calm["peak_ratio"] < 1.25
    assert calm["slow_s"] == 0.0 < loud["slow_s"] < 1.5
    assert 2.7 < runs["runtime-restart"]["migrations"][0]["duration_s"] < 2.8
    assert runs["runtime-restart"]["migrations"][0]["peak_ratio"] > 6


def test_moved_bins_are_kept_apart(runs):
    latency = runs["megaphone-batched"]["latency_ms"]
    assert 0 < latency["migrating_moved"]["count"] < latency["migrating"]["count"]


def test_back_to_steady_is_found_for_each_migration(runs):
    assert runs["megaphone-fluid"]["migrations"][0]["settled_s"] == 0.0
    loud = runs["megaphone-all-at-once"]["migrations"][0]
    assert 0.5 < loud["settled_s"] < 3


def test_reads_of_a_shared_store_are_a_phase_and_its_cache_has_a_hit_rate(run_folder):
    lines = read_lines(run_folder / "epochs.jsonl")
    with JsonLines(run_folder / "epochs.jsonl") as file:
        for line in lines:
            file.write({**line, "cache_hits": 1, "cache_misses": 3, "ms": {**line["ms"], "read": 7.0}})
    entry = summarise_run(run_folder)
    assert entry["cache"] == {"hits": len(lines), "misses": 3 * len(lines), "hit_rate": 0.25}
    assert entry["epoch_ms"]["steady"]["phases"]["read"]["p50"] == pytest.approx(7.0, rel=1e-3)


def test_a_run_without_a_shared_store_has_no_cache(runs):
    assert runs["none"]["cache"] is None
    assert runs["none"]["epoch_ms"]["steady"]["phases"]["read"]["max"] == 0.0


def test_memory_is_the_peak_by_role(runs, folder):
    run = runs["megaphone-batched"]
    lines = read_lines(folder / run["folder"] / "memory.jsonl")
    for kind, found in (("rss", run["memory_bytes"]), ("anon", run["memory_anon_bytes"])):
        assert found == {role: max(line["roles"][role][kind] for line in lines) for role in lines[0]["roles"]}


def test_throughput_is_the_rate_but_for_the_last_epoch(runs):
    assert runs["none"]["throughput"]["records_per_s"] == pytest.approx(RATE, rel=0.03)
    assert runs["runtime-restart"]["throughput"]["per_s"]["min"] == 0


@pytest.mark.parametrize("verdict", ["invalid", "unknown"])
def test_a_run_that_is_not_valid_is_withheld(run_folder, verdict):
    edit(run_folder / "oracle.json", verdict=verdict, reasons=["3 lost"], lost=3)
    entry = summarise_run(run_folder)
    assert (entry["verdict"], entry["withheld"], entry["reasons"], entry["lost"]) == (verdict, True, ["3 lost"], 3)
    assert entry["latency_ms"]["steady"]["count"] > 0


def test_a_run_without_an_oracle_is_unknown(run_folder):
    (run_folder / "oracle.json").unlink()
    entry = summarise_run(run_folder)
    assert (entry["verdict"], entry["lost"], entry["reasons"]) == ("unknown", None, ["The output was not checked."])


def test_negative_latencies_fail_a_valid_run(run_folder):
    with JsonLines(run_folder / "epochs.jsonl") as file:
        file.write({**read_lines(run_folder / "epochs.jsonl")[3], "negative": 4})
    entry = summarise_run(run_folder)
    assert (entry["verdict"], entry["negative"]) == ("unknown", 4)
    assert entry["reasons"] == ["4 latencies are negative: the clock was stepped, or records were sent ahead of time."]


def spoil_last_cells(run_folder, latency_us):
    line = read_lines(run_folder / "cells.jsonl")[-1]
    old = read_cells(run_folder / "cells.jsonl")
    mine = old.take((old.epoch == line["epoch"]) & (old.done_us == line["done_us"]))
    due = np.full(mine.records, line["done_us"] - latency_us)
    cells, _ = make_cells(due, line["done_us"], np.zeros(len(due), bool))
    with JsonLines(run_folder / "cells.jsonl") as file:
        file.write({**line, "cells": encode_cells(cells)})
    return mine.records


def test_latencies_beyond_the_histograms_fail_a_valid_run(run_folder):
    number = spoil_last_cells(run_folder, 2 * 3_600_000_000)
    entry = summarise_run(run_folder)
    assert (entry["verdict"], entry["withheld"]) == ("unknown", True)
    assert entry["reasons"] == [f"{number} latencies are above 1 h and fit into no histogram."]
    assert not (run_folder / "intervals.hlog").exists()


def test_a_record_without_a_latency_fails_a_valid_run(run_folder):
    edit(run_folder / "generator.json", records=2_401)
    entry = summarise_run(run_folder)
    assert (entry["verdict"], entry["reasons"]) == ("unknown", ["2400 latencies were measured of 2401 records sent."])


def test_records_sent_before_a_resume_count(run_folder):
    edit(run_folder / "generator.json", records=400, already_there=2_000)
    entry = summarise_run(run_folder)
    assert (entry["verdict"], entry["generator"]["records"]) == ("valid", 2_400)


@pytest.mark.parametrize(("lag_ms", "load"), [(49.0, "met"), (51.0, "late")])
def test_a_late_generator_is_marked_next_to_the_verdict(tmp_path, lag_ms, load):
    write_run(tmp_path, mechanism="none", seconds=6, rate=100, lag_ms=lag_ms)
    entry = read_json(tmp_path / "run-result.json")
    assert (entry["load"], entry["verdict"], entry["generator"]["max_lag_ms"]) == (load, "valid", lag_ms * 1.5)


def test_the_last_line_of_an_epoch_counts(run_folder):
    before = summarise_run(run_folder)
    first = read_lines(run_folder / "cells.jsonl")[0]
    torn = json.dumps({**first, "epoch": 9})[:40]
    (run_folder / "cells.jsonl").write_text(
        json.dumps({**first, "cells": "no"}) + "\n" + (run_folder / "cells.jsonl").read_text() + torn
    )
    assert summarise_run(run_folder) == before


def test_broken_cells_are_named(run_folder):
    with JsonLines(run_folder / "cells.jsonl") as file:
        file.write({"epoch": 0, "worker": 0, "done_us": 1, "cells": "AAAA"})
    with pytest.raises(ValueError, match=r"cells\.jsonl holds cells that cannot be decoded"):
        summarise_run(run_folder)


def test_a_run_cut_off_is_in_the_result_as_unknown(folder, tmp_path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    cut, failed, never = sorted((tmp_path / "runs").iterdir())[-3:]
    for path in (cut, failed, never):
        for name in ("run-result.json", "oracle.json", "generator.json"):
            (path / name).unlink()
    write_json(failed / "error.json", {"error": "The query failed."})
    (failed / "cells.jsonl").unlink()
    (never / "load.json").unlink()
    write_result(tmp_path)
    runs = validate(tmp_path)["runs"]
    assert len(runs) == len(MECHANISMS) - 1
    assert [(run["verdict"], run["load"]) for run in runs[-2:]] == [("unknown", "late")] * 2
    assert runs[-1]["reasons"] == ["The query failed.", "The output was not checked."]


def test_an_empty_run_folder_gives_an_entry_that_obeys_the_schema(tmp_path):
    (tmp_path / "runs" / "00-none-r0").mkdir(parents=True)
    write_json(tmp_path / "runs" / "00-none-r0" / "error.json", {"error": "No broker."})
    write_json(tmp_path / "experiment.json", {"name": "x", "seed": 3, "mechanisms": ["none"]})
    assert write_result(tmp_path)["environment"]["seed"] == 3
    (run,) = validate(tmp_path)["runs"]
    assert (run["verdict"], run["warmup_s"], run["timeline"]) == ("unknown", None, [])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema": SCHEMA + 1}, r"has schema version 2, and this program reads version 1"),
        ({"schema": None}, r"names no schema version"),
        ({"runs": [{}]}, r"breaks the schema at \$\.runs\[0\]"),
    ],
)
def test_another_result_is_refused_in_one_sentence(folder, tmp_path, change, words):
    path = tmp_path / "result.json"
    write_json(path, {**read_json(folder / "result.json"), **change})
    with pytest.raises(UsageError, match=words) as caught:
        validate(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", [None, "{", "[]"])
def test_what_is_no_result_is_refused(tmp_path, text):
    if text is not None:
        (tmp_path / "result.json").write_text(text)
    with pytest.raises(UsageError, match=r"result\.json (cannot be read|is not JSON|names no schema)"):
        validate(tmp_path)


def test_environment_names_the_machine_and_the_versions():
    here = describe_machine(7)
    assert (here["seed"], type(here["dirty"]), here["cores"] > 0) == (7, bool, True)
    assert here["memory_bytes"] > 1 << 28
    assert here["versions"]["pyspark"] == "4.3.0"
    assert here["versions"]["kafka"].startswith("4.")
    assert all(here["versions"].values())
