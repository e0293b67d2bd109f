"""The metrics endpoint answers over HTTP what the state of the runs holds, under names with units."""

import json
import re
import socket
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from telling import RUN, epoch_record

from harness.live.view import LiveState, serving
from harness.results.entry import ENTRY_FILE
from harness.run.progress import line_of
from harness.run.recorder import Recorder
from harness.suites.bench import run_bench
from impls.errors import UsageError

LABELS = {"run": "03-megaphone-batched-r0", "mechanism": "megaphone-batched"}


def scrape(port):
    """Returns what the endpoint answers as {name: [(labels, value)]}, and the families' types."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    samples = {}
    for family in families:
        assert family.documentation.endswith("."), family.name
        for sample in family.samples:
            samples.setdefault(sample.name, []).append((sample.labels, sample.value))
    return samples, {family.name: family.type for family in families}


def scrape_until_gone(port):
    """Returns the samples of the last answer."""
    samples = {}
    while True:
        try:
            samples, _ = scrape(port)
        except OSError:
            return samples


@pytest.fixture
def line(tmp_path):
    """A second's line of a run in the middle of a migration, as its process writes it."""
    recorder = Recorder(tmp_path)
    recorder.event("command", {"id": "a", "moves": {"bins": 8, "size": 4096, "bins_minimum": 8, "size_minimum": 4096}})
    recorder.on_epoch(epoch_record(epoch=7, latencies_ms=np.arange(1, 101)))
    yield json.loads(json.dumps(line_of(recorder, "load", rate=50.0, due=130)))
    recorder.close()


def answered(line):
    """Returns what is answered of a run that has told a line, as `scrape` does."""
    state = LiveState()
    with serving("0", state, last_s=0) as port:
        state.begin(RUN)
        state.progress(RUN, line)
        return scrape(port)


def test_a_run_under_way_is_answered_in_seconds_and_bytes(line):
    samples, _ = answered(line)
    one = {
        "rescale_records_total": 100, "rescale_records_per_second": 50, "rescale_lag_records": 30,
        "rescale_epoch_number": 7, "rescale_epoch_seconds": 0.21,
        "rescale_moved_bins_total": 2, "rescale_moved_bytes_total": 1024,
        "rescale_planned_bins": 8, "rescale_planned_bytes": 4096, "rescale_misplaced_bins": 6,
    }  # fmt: skip
    for name, value in one.items():
        assert samples[name] == [(LABELS, pytest.approx(value))], name
    latency = {labels["quantile"]: value for labels, value in samples["rescale_latency_seconds"]}
    assert latency == pytest.approx({"0.5": 0.05, "0.99": 0.099, "1": 0.1}, rel=0.01)
    phases = {labels["phase"]: value for labels, value in samples["rescale_epoch_phase_seconds"]}
    assert phases == pytest.approx({name: ms / 1000 for name, ms in line["phases_ms"].items()})
    assert phases["pull"] == pytest.approx(0.005)
    assert samples["rescale_run_phase"] == [(LABELS | {"phase": "load"}, 1)]


def test_names_follow_the_conventions(line):
    samples, types = answered(line)
    for name, kind in types.items():
        assert re.fullmatch(r"rescale_[a-z_]+", name)
        assert not name.endswith(("_ms", "_total")), name
        assert kind in {"gauge", "counter"}
    assert all(name.endswith("_total") == (types.get(name.removesuffix("_total")) == "counter") for name in samples)


def test_before_the_first_epoch_what_is_not_known_is_left_out(tmp_path):
    state, recorder = LiveState(), Recorder(tmp_path)
    with serving("0", state, last_s=0) as port:
        assert "rescale_run_phase" not in scrape(port)[0]
        state.begin(RUN)
        assert "rescale_records_total" not in scrape(port)[0]
        state.progress(RUN, line_of(recorder, "starting", rate=None, due=None))
        samples, _ = scrape(port)
    recorder.close()
    assert samples["rescale_records_total"] == [(LABELS, 0)]
    assert not {"rescale_epoch_number", "rescale_lag_records", "rescale_latency_seconds"} & set(samples)


def test_verdict_and_load_of_a_run_stay_when_it_has_ended(line, tmp_path):
    state = LiveState()
    (tmp_path / ENTRY_FILE).write_text(json.dumps({"verdict": "valid", "load": "late"}))
    with serving("0", state, last_s=0) as port:
        state.begin(RUN)
        state.progress(RUN, line)
        state.end(RUN, tmp_path)
        state.begin(RUN)
        state.end(RUN, tmp_path / "failed")
        samples, _ = scrape(port)
    assert [labels["verdict"] for labels, _ in samples["rescale_run_verdict"]] == ["valid", "failed"]
    assert [labels["load"] for labels, _ in samples["rescale_run_load"]] == ["late", "failed"]
    assert "rescale_records_total" not in samples, "no run is under way"


def test_it_ends_with_the_experiment():
    with serving("0", LiveState(), last_s=0) as port:
        scrape(port)
    with pytest.raises(urllib.error.URLError):
        scrape(port)


def test_the_end_waits_for_one_more_answer_only_where_somebody_asks(tmp_path):
    state = LiveState()
    (tmp_path / ENTRY_FILE).write_text(json.dumps({"verdict": "valid", "load": "met"}))
    with ThreadPoolExecutor(1) as pool, serving("0", state, last_s=60) as port:
        scrape(port)
        state.begin(RUN)
        state.end(RUN, tmp_path)
        last = pool.submit(scrape_until_gone, port)
    assert last.result()["rescale_run_verdict"] == [(LABELS | {"verdict": "valid"}, 1)]
    begun = time.monotonic()
    with serving("0", state, last_s=60):
        pass
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize("port", ["eighty", "-1", "65536", ""])
def test_what_is_no_port_is_one_sentence(port, tmp_path, capsys):
    assert run_bench({"metrics_port": port, "output": str(tmp_path / "results")}) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "--metrics-port takes the number of a port" in err
    assert not (tmp_path / "results").exists()


def test_a_port_in_use_is_one_sentence_before_anything_starts(tmp_path, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run_bench({"metrics_port": str(port), "output": str(tmp_path / "results")}) == 2
        with pytest.raises(UsageError), serving(str(port), LiveState()):
            pass
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert f"The port {port} cannot be listened on (Address already in use)" in err
    assert not (tmp_path / "results").exists()
