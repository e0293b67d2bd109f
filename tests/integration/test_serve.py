"""Services on given addresses, as the compose file starts them."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import redis
from processes import spawn, working_on

from harness.lab.broker import ExternalBroker

pytestmark = pytest.mark.timeout(120)
ROOT = Path(__file__).parents[2]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def serve(service, port, folder):
    command = [sys.executable, "-m", "harness.lab.serve", service, "--port", str(port), "--folder", str(folder)]
    return spawn(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("service", ["broker", "redis"])
def test_a_service_answers_on_its_port_until_it_is_told_to_end(tmp_path, service):
    port = free_port()
    process = serve(service, port, tmp_path)
    try:
        assert process.stdout.readline() == f"{service} answers on port {port}\n", process.stderr.read()
        if service == "broker":
            ExternalBroker(f"127.0.0.1:{port}").start()
        else:
            with redis.Redis(port=port) as client:
                assert client.ping()
        second = serve(service, port, tmp_path / "second")
        said = second.communicate(timeout=60)[1]
        assert (second.returncode, len(said.splitlines())) == (2, 1), said
        assert str(port) in said
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        for pipe in (process.stdout, process.stderr):
            pipe.close()


def serve_spark(folder, *words):
    """A master or worker, once it answers; its folder says so too."""
    command = [sys.executable, "-m", "harness.lab.serve", *words, "--folder", folder]
    process = spawn(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    told = process.stdout.readline()
    assert told.startswith(f"{words[0]} answers "), process.stderr.read()
    assert (folder / "ready").exists()
    return process


def end(process, code):
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == code
    for pipe in (process.stdout, process.stderr):
        pipe.close()


def test_spark_s_master_and_workers_are_services_on_addresses_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    port = str(free_port())
    master = serve_spark(tmp_path / "master", "master", "--host", "127.0.0.2", "--port", port)
    joining = ["--master", f"spark://127.0.0.2:{port}", "--cores", "3", "--memory", "512m"]
    worker = serve_spark(tmp_path / "worker", "worker", "--host", "127.0.0.3", *joining)
    assert "Registering worker 127.0.0.3:" in (tmp_path / "master" / "spark.log").read_text()
    assert "with 3 cores, 512.0 MiB RAM" in (tmp_path / "master" / "spark.log").read_text()
    (jvm,) = [one for one in working_on(tmp_path / "worker") if "java" in one.name()]
    assert jvm.environ()["AWS_ACCESS_KEY_ID"] == "somebody", "executors inherit it"
    jvm.kill()
    assert worker.wait(30) == 1, "a service ends with its program"
    assert not (tmp_path / "worker" / "ready").exists()
    end(worker, 1)
    end(master, 0)


@pytest.mark.parametrize(("words", "needed"), [(["worker"], "--master"), (["broker"], "--port")])
def test_a_service_says_what_it_needs(tmp_path, words, needed):
    command = [sys.executable, "-m", "harness.lab.serve", *words, "--folder", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, f"serve: error: a {words[0]} needs {needed}")
