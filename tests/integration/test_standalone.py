"""Runs on Spark's standalone cluster, in processes of their own: beside the tests' session there can be no other."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from harness.lab.hosts.cluster import cluster as hosts

_ROOT = Path(__file__).resolve().parents[2]
_START = """
import sys
from harness.lab.bringup import open_session
from impls.errors import UsageError
try:
    open_session("refused", 2, master=sys.argv[1])
except UsageError as error:
    sys.exit(str(error))
"""


def _bench(master, output, *options):
    command = [sys.executable, "-P", "-m", "invoke", "bench", "--quick", "--master", master, "--output", str(output)]
    return subprocess.run([*command, *options], cwd=_ROOT, capture_output=True, text=True, timeout=240, check=False)


def _drivers_of(master):
    """Returns the processes that were started for a session on a master."""
    return [p for p in psutil.process_iter(["cmdline"]) if f"spark.master={master}" in (p.info["cmdline"] or [])]


@pytest.mark.capability
def test_a_run_on_a_cluster_is_valid_and_the_archive_goes_with_the_session(tmp_path):
    with hosts(1, folder=tmp_path / "cluster", isolated=False) as cluster:
        done = _bench(
            cluster.master, tmp_path / "results", "--mechanism", "megaphone-batched", "--keys", "20k", "--rate", "1k"
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
        fetched = list((tmp_path / "cluster").rglob("impls.zip"))
        assert fetched, "executors fetched the package from the driver"
    [result] = (tmp_path / "results").glob("*/result.json")
    [run] = json.loads(result.read_text())["runs"]
    assert (run["verdict"], run["lost"], run["doubled"]) == ("valid", 0, 0)
    assert sum(migration["bins"] for migration in run["migrations"]) > 0
    assert (run["hosts"]["hosts"], run["hosts"]["stayed_share"]) == (["127.0.0.2"], 1.0)
    [clock] = run["hosts"]["clocks"]
    assert abs(clock["offset_ms"]) <= clock["within_ms"] + 0.1  # the same clock
    assert run["memory_bytes"]["executor"] > 0
    assert run["memory_bytes"]["worker"] > 0
    assert "Workers ran on the host that they ran on before in at least" in done.stdout


def test_a_cluster_without_workers_is_said_in_one_sentence(tmp_path):
    with hosts(0, folder=tmp_path / "cluster", isolated=False) as cluster:
        done = _bench(cluster.master, tmp_path / "results", "--mechanism", "none")
        assert done.returncode == 2, done.stdout[-3000:] + done.stderr[-2000:]
        assert f"The Spark master at {cluster.master} gave no executor within" in done.stderr
        assert "it has no worker, so start one" in done.stderr
        assert done.stderr.count("\n") == 1, done.stderr
        assert not _drivers_of(cluster.master)


def test_a_cluster_whose_workers_are_full_says_what_is_free(tmp_path):
    with hosts(1, folder=tmp_path / "cluster", isolated=False, memory="512m") as cluster:
        done = subprocess.run(
            [sys.executable, "-c", _START, cluster.master], cwd=_ROOT, capture_output=True, text=True, timeout=120,
            check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert (
        "of its 2 cores 2 are free, of a worker's memory 512 MiB at most, and an executor takes 1024 MiB"
        in (done.stderr.splitlines()[-1])
    )


def test_what_listens_but_is_no_master_is_said_in_time():
    with socket.create_server(("127.0.0.1", 0)) as server:
        master = f"spark://127.0.0.1:{server.getsockname()[1]}"
        done = subprocess.run(
            [sys.executable, "-c", _START, master], cwd=_ROOT, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1].startswith(f"What listens at {master} did not take the application")
        assert not _drivers_of(master)


@pytest.mark.parametrize(
    ("master", "says"),
    [("spark://127.0.0.1:1", "No Spark master listens at spark://127.0.0.1:1"), ("sparkle", "'sparkle' is no Spark")],
)
def test_an_address_without_a_master_is_refused_before_anything_is_written(tmp_path, master, says):
    done = _bench(master, tmp_path / "results", "--mechanism", "none")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(says)
    assert done.stderr.count("\n") == 1
    assert not list((tmp_path / "results").glob("*/*"))
