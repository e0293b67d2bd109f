"""Changelog and snapshots in an object store: a real server of the S3 protocol, on this host."""

import socket
import subprocess
import sys
import time

import pytest
from durable import Workers
from timed import BINS, TimedRun

from harness.experiment.description import Run
from harness.experiment.make import make_experiment
from harness.run.pipeline import log_dir
from impls.durability.files import Files
from impls.errors import UsageError
from impls.operators import HashCount
from impls.protocol.plan import Pull
from impls.reading.state import read_state

START_DEADLINE_S = 60


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    """URI of a new bucket."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with (tmp_path / "server.log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            _await_port(port, server)
            monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
            monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
            monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
            where = f"endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1&allow_bucket_creation=true"
            yield f"s3://states/query?{where}"
        finally:
            server.kill()
            server.wait(10)


def _await_port(port: int, server: subprocess.Popen) -> None:
    end = time.monotonic() + START_DEADLINE_S
    while True:
        assert server.poll() is None, "the server ended"
        assert time.monotonic() < end, f"waited {START_DEADLINE_S} s for the server"
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)


@pytest.mark.capability
def test_a_worker_is_rebuilt_and_bins_are_pulled_from_an_object_store(bucket, tmp_path):
    workers = Workers(tmp_path, uri=bucket, replay_epochs=10)
    workers.epochs(15)
    workers.lose(1)
    workers.epoch()
    workers.epoch([Pull(0, 0, 2)], from_checkpoint=True)
    workers.epoch()
    workers.check()
    assert not (tmp_path / "checkpoint").exists()
    assert len(workers.files.names("log")) <= 3 * (10 + 2)
    assert workers.files.names("snapshots")
    workers.files.clear()
    assert not workers.files.names("snapshots")
    workers.files.clear()


def test_state_is_read_from_an_object_store(bucket, tmp_path):
    run = TimedRun(tmp_path, HashCount(preload=20), key="long", log_dir=bucket, replay_epochs=4)
    for number in range(12):
        if number % 4 == 2:
            run.move([(bin_ + number) % 3 for bin_ in range(BINS)])
        run.epoch([(0, key, {}) for key in range(number % 2, 20, 2)])
    run.checkpoint.close()
    frame = read_state(tmp_path / "checkpoint", log_dir=bucket)
    assert (len(frame), set(frame.value), frame.attrs["epoch"]) == (20, {6}, 11)
    with pytest.raises(UsageError, match="name the log_dir of the query"):
        read_state(tmp_path / "checkpoint")


def test_the_log_of_a_run_is_below_what_its_user_names_before_the_query_of_the_uri(bucket, tmp_path):
    where = log_dir(
        Run(make_experiment(mechanism="meces", log_dir=bucket), "meces", 0, 3),
        tmp_path / "all" / "runs" / "03-meces-r0",
    )
    files = Files(where)
    files.make_folders(["log"])
    files.write("log/1", b"frame")
    assert Files(bucket).names("all-03-meces-r0/log") == [("all-03-meces-r0/log/1", 5)]
    files.clear()
    assert Files(bucket).names("all-03-meces-r0/log") == []
