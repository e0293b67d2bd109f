"""A cluster of containers: what docker is told, what a user is told, and that nothing is left where something fails."""

import re
import shlex

import pytest
import yaml

from harness.files import ROOT
from harness.suites.artifact import image
from harness.suites.artifact.image import bench_on_cluster
from impls.errors import UsageError

_DOCKER = """#!/bin/sh
[ "$1 $2" != "compose version" ] || exit 0
echo "$@" >>{calls}
case "$*" in
    "image inspect "*-s3) exit {no_s3};;
    *" up "*) echo "$RESCALE_COMMAND" >{command}; echo "worker-2 is unhealthy" >&2; exit {no_start};;
    *" ps "*) echo the-container;;
    "logs "*) echo "results are in /app/results/20260101-quick";;
    "wait "*) echo {code};;
esac
"""


@pytest.fixture
def docker(tmp_path, monkeypatch):
    """A program in docker's place that writes down how it is called, from what it shall answer."""
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    calls, command = tmp_path / "calls", tmp_path / "command"

    def answer(code=0, no_s3=0, no_start=0):
        program.write_text(_DOCKER.format(calls=calls, command=command, code=code, no_s3=no_s3, no_start=no_start))
        program.chmod(0o755)

    answer()
    answer.calls = lambda: [_verb(line) for line in calls.read_text().splitlines()]
    answer.command = lambda: shlex.split(command.read_text())
    return answer


def _verb(line):
    return re.sub(r"compose --project-name rescale-cluster-\d+ --file \S+ --profile cluster", "compose", line)


@pytest.mark.capability
def test_a_bench_runs_on_the_cluster_which_is_gone_afterwards(tmp_path, docker, capsys):
    assert bench_on_cluster([], results=tmp_path / "results") == 0
    assert docker.calls() == [
        "info", "image inspect rescale-bench", "image inspect rescale-bench-s3", "compose up --detach driver",
        "compose ps --all --quiet driver", "logs --follow the-container", "wait the-container",
        "compose down --volumes --timeout 20",
    ]  # fmt: skip
    assert docker.command()[:4] == ["bench", "--quick", "--master", "spark://master:7077"]
    assert capsys.readouterr().out == f"results are in {tmp_path}/results/20260101-quick\n"


def test_a_bench_that_fails_leaves_the_hosts_logs_and_its_exit_code(tmp_path, docker):
    docker(code=3)
    assert bench_on_cluster(["--mechanism", "meces", "--rate-shape", "a $b"], results=tmp_path / "results") == 3
    copied = [call for call in docker.calls() if call.startswith("cp ")]
    hosts = ("master", "worker-1", "worker-2", "kafka")
    assert copied == [f"cp the-container:/tmp/host {tmp_path}/results/hosts/{host}" for host in hosts]
    assert docker.calls()[-1].startswith("compose down ")
    assert docker.command()[:5] == ["bench", "--mechanism", "meces", "--rate-shape", "a $b"]


def test_what_cannot_be_is_one_sentence(tmp_path, docker):
    with pytest.raises(UsageError, match="the containers share none: leave native-restart"):
        bench_on_cluster(["--mechanism", "none,native-restart"], results=tmp_path)
    docker(no_s3=1)
    with pytest.raises(UsageError, match=r"no image rescale-bench-s3: \./inv docker.build --cluster builds it"):
        bench_on_cluster([], results=tmp_path)
    docker(no_start=1)
    with pytest.raises(UsageError, match="docker compose up failed: worker-2 is unhealthy"):
        bench_on_cluster([], results=tmp_path)
    assert docker.calls()[-1].startswith("compose down ")


def test_the_words_name_what_the_compose_file_has():
    services = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())["services"]
    own = {name: service for name, service in services.items() if service.get("profiles") == ["cluster"]}
    assert set(own) == {"master", "worker-1", "worker-2", "kafka", "s3", "driver"}
    assert all(service["hostname"] == name and "network_mode" not in service for name, service in own.items())
    assert [name for name, service in own.items() if "volumes" in service] == ["driver"]
    asked = re.findall(r"(master|kafka|s3):(\d+)", " ".join(image._ON_CLUSTER))
    assert dict(asked).keys() == {"master", "kafka", "s3"}
    for name, port in asked[:2]:
        assert own[name]["entrypoint"][-6:] == ["--host", name, "--port", port, "--folder", "/tmp/host"]
    assert f'"--port", "{dict(asked)["s3"]}"' in (ROOT / "docker" / "s3.Dockerfile").read_text()
