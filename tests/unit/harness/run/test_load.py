"""load.json: the schedule of a run is written once, with a copy of the file it replays."""

import threading

import pytest

from harness.experiment.description import Experiment
from harness.files import read_json
from harness.lab.waiting import wait_for
from harness.run.load import LoadGenerator, schedule
from impls.errors import UsageError


def test_a_schedule_is_made_once_and_kept(tmp_path):
    first = schedule(tmp_path, Experiment(rate=1000, rate_shape="sine:period=8", duration_s=8, lead_in_s=2), "in")
    assert (first["rate_shape"], first["records"], first["lead_in_s"]) == ("sine:period=8", 10_000, 2)
    assert first["due_by_second"][:2] == [1000, 2000]
    assert first["due_by_second"][-1] == 10_000
    assert schedule(tmp_path, Experiment(rate=5), "in") == first == read_json(tmp_path / "load.json")


def test_a_replayed_file_is_copied_into_the_run(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("0,100\n10,300\n")
    experiment = Experiment(rate_shape=f"csv-steps:{path}", duration_s=12, lead_in_s=0)
    assert schedule(tmp_path / "run", experiment, "in")["rate_shape"] == "csv-steps:rates.csv"
    assert (tmp_path / "run" / "rates.csv").read_text() == path.read_text()
    assert experiment.records == 1600
    before = experiment.digest()
    path.write_text("0,100\n10,301\n")
    assert experiment.digest() != before


def test_a_generator_that_did_not_live_to_read_its_last_word_is_closed(tmp_path):
    load = {**schedule(tmp_path, Experiment(rate=1000), "in"), "start_us": 1, "partitions": 0}
    gone, told = threading.Event(), threading.Event()

    def waits_for():
        gone.wait(60)
        told.set()
        return ""

    generator = LoadGenerator(tmp_path, "127.0.0.1:1", load, resume=False, waits_for=waits_for)
    with pytest.raises(UsageError, match="number of partitions must be at least 1"):
        wait_for(generator.finished, "the generator's end", 60)
    gone.set()
    assert told.wait(60)
    generator._steer.join(60)
    generator.close()
