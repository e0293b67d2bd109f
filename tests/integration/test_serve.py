"""A broker and a Redis server on given ports, as the compose file starts them."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import redis
from processes import spawn

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
