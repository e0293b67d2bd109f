"""Clusters of hosts on this machine: their jobs, their isolation, what is done to them, and that nothing is left."""

import errno
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import processes
import psutil
import pytest

from harness.lab.hosts.cluster import cluster
from harness.lab.hosts.isolated import can_isolate
from harness.lab.hosts.programs import processes_of
from harness.lab.waiting import wait_for
from impls.errors import UsageError

_ROOT = Path(__file__).resolve().parents[2]
_DEADLINE_S = 60.0
_DELAY_MS = 5
_PORT = 5000
_NEEDS_ROOT = pytest.mark.skipif(not can_isolate(), reason="only root may make namespaces")
_FORMS = [pytest.param(False, id="loopback"), pytest.param(True, id="namespaces", marks=_NEEDS_ROOT)]
_HOLD = """
import sys
from pathlib import Path
from harness.lab.hosts.cluster import cluster
with cluster(1, folder=Path(sys.argv[1]), isolated=sys.argv[2] == "True"):
    print("up", flush=True)
    sys.stdin.read()
"""
_JOBS = """
import os, sys, time
from harness.lab.bringup import open_session
spark = open_session("jobs", 2, master=sys.argv[1])
def where(batches):
    import pyarrow as pa
    for batch in batches:
        time.sleep(0.5)  # so that no executor has time for all tasks
        yield pa.RecordBatch.from_pydict({"host": [os.environ["SPARK_LOCAL_IP"]]})
for _ in sys.stdin:
    rows = spark.range(0, 4, 1, 4).mapInArrow(where, "host string").collect()
    print(*sorted({row.host for row in rows}), flush=True)
"""
_ECHO = """
import contextlib, socket, threading

def answer(connection):
    with connection, contextlib.suppress(OSError):  # the other end may be cut off
        while connection.recv(1):
            connection.sendall(b"x")

with socket.create_server(("", 5000)) as server:
    print("up", flush=True)
    while True:  # one that is cut off before its end is told keeps nobody else waiting
        threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()
"""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    """A cluster of two hosts in namespaces, with a slow network and small disks."""
    folder = tmp_path_factory.mktemp("cluster")
    with cluster(2, folder=folder, isolated=True, cores=1, netem=f"delay {_DELAY_MS}ms", disk="32m") as running:
        yield running
    _await_nothing_left(folder)


def _await_nothing_left(folder):
    """Waits until no process, no interface and no mount of a cluster is there; orphans of its network take a moment."""
    wait_for(lambda: not processes_of(folder), "the processes of the hosts to end", _DEADLINE_S)
    assert str(folder) not in Path("/proc/mounts").read_text()
    address = re.search(r"Starting Spark master at spark://([\d.]+):", (folder / "master.log").read_text())
    assert address is not None
    if not address[1].startswith("127."):
        name = f"rescale{address[1].split('.')[2]}"
        wait_for(lambda: name not in psutil.net_if_addrs(), "the interface to go", _DEADLINE_S)


@contextmanager
def _jobs(master):
    """Yields a function that runs a job and returns the addresses of the hosts that had a task of it."""
    with subprocess.Popen(
        [sys.executable, "-c", _JOBS, master], cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def run():
            process.stdin.write("go\n")
            process.stdin.flush()
            return process.stdout.readline().split()

        yield run
        process.stdin.close()
        assert process.wait(_DEADLINE_S) == 0


@pytest.mark.parametrize("isolated", _FORMS)
def test_a_job_runs_on_every_host_and_the_end_leaves_nothing(tmp_path, isolated):
    with cluster(2, folder=tmp_path, isolated=isolated, cores=1) as running:
        addresses = [host.address for host in running.hosts]
        assert len(set(addresses)) == 2
        with _jobs(running.master) as run:
            assert run() == addresses
            [killed] = running.kill_executor(running.hosts[0])
            wait_for(lambda: len(running.hosts[0].executors) == 1, "another executor", _DEADLINE_S)
            assert killed not in running.hosts[0].executors
            wait_for(lambda: run() == addresses, "tasks on the new executor", _DEADLINE_S)
            assert [host.state for host in running.hosts] == ["up", "up"]
    _await_nothing_left(tmp_path)


@pytest.mark.parametrize("isolated", _FORMS)
@pytest.mark.parametrize("when", ["starting", "up"])
def test_a_cluster_ends_with_whoever_has_started_it(tmp_path, isolated, when):
    starter = processes.spawn(
        [sys.executable, "-c", _HOLD, tmp_path, isolated], cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    if when == "up":
        assert starter.stdout.readline() == "up\n"
        assert len(processes_of(tmp_path, 1)) >= 1
    else:
        wait_for(lambda: _master_is_up(tmp_path), "the master", _DEADLINE_S)
    starter.kill()
    _await_nothing_left(tmp_path)


def _master_is_up(folder):
    log = folder / "master.log"
    return log.exists() and "New state: ALIVE" in log.read_text()


def _inv(*words):
    command = [sys.executable, "-P", "-m", "invoke", *words]
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "start_new_session": True}
    return processes.spawn(command, cwd=_ROOT, **how)


def _said(process):
    return process.communicate(timeout=4 * _DEADLINE_S)[0], process.returncode


@pytest.mark.parametrize("victim", ["start", "supervisor"])
def test_a_cluster_that_is_killed_leaves_nothing(tmp_path, victim):
    starting = _inv("cluster.start", "--hosts", "1", "--folder", str(tmp_path))
    if victim == "start":
        wait_for(lambda: _master_is_up(tmp_path), "the master", _DEADLINE_S)
        starting.kill()
        starting.wait(_DEADLINE_S)
    else:
        said, code = _said(starting)
        assert code == 0, said
        assert "./inv bench --master spark://" in said
        supervisors = [one for one in processes_of(tmp_path) if "harness.lab.hosts.supervisor" in one.cmdline()]
        supervisors[-1].kill()
    _await_nothing_left(tmp_path)


@pytest.mark.capability
def test_a_cluster_is_started_looked_at_and_stopped_by_commands(tmp_path):
    said, code = _said(_inv("cluster.start", "--hosts", "1", "--folder", str(tmp_path)))
    assert code == 0, said
    said, code = _said(_inv("cluster.status", "--folder", str(tmp_path)))
    assert (code, "up" in said) == (0, True), said
    said, code = _said(_inv("cluster.start", "--hosts", "1", "--folder", str(tmp_path)))
    assert code == 2
    assert said == f"A cluster runs in {tmp_path} already: ./inv cluster.stop ends it.\n"
    said, code = _said(_inv("cluster.stop", "--folder", str(tmp_path)))
    assert (said, code) == ("", 0)
    assert not processes_of(tmp_path)
    assert sorted(path.name for path in tmp_path.glob("hosts/1/*")) == ["work", "worker.log"]
    for task in ("cluster.stop", "cluster.status"):
        said, code = _said(_inv(task, "--folder", str(tmp_path)))
        assert code == 2
        assert said.count("\n") == 1


def _network_of(host):
    return ["nsenter", f"--net=/proc/{host.worker}/ns/net", "--"]


def _files_of(host):
    return ["nsenter", f"--mount=/proc/{host.worker}/ns/mnt", "--"]


@_NEEDS_ROOT
def test_a_host_has_its_own_state_and_sees_nothing_of_another(hosts):
    first, second = hosts.hosts
    path = str(hosts.state_dir / "mine")
    subprocess.run([*_files_of(first), "touch", path], check=True)
    assert (first.state_dir / "mine").exists()
    assert not (second.state_dir / "mine").exists()
    seen = [*_files_of(second), "ls", path, str(hosts.folder / "hosts")]
    done = subprocess.run(seen, capture_output=True, text=True, check=False)
    assert done.stdout.split() == [f"{hosts.folder}/hosts:"]
    assert "No such file" in done.stderr
    everything = ["sh", "-c", "cat /proc/[0-9]*/cmdline"]
    ran = subprocess.run([*_files_of(second), *everything], capture_output=True, check=False).stdout.decode()
    assert second.address in ran
    assert first.address not in ran


@_NEEDS_ROOT
def test_packets_wait_and_a_host_that_is_cut_off_is_not_reached(hosts):
    first, second = hosts.hosts
    ask = (
        "import socket, time\n"
        f"with socket.create_connection(('{second.address}', {_PORT}), 1) as c:\n"
        " begin = time.perf_counter(); c.sendall(b'x'); c.recv(1); print((time.perf_counter() - begin) * 1e3)"
    )

    def asked():
        done = subprocess.run(
            [*_network_of(first), sys.executable, "-c", ask], capture_output=True, text=True, check=False
        )
        return float(done.stdout) if done.returncode == 0 else None

    with subprocess.Popen(
        [*_network_of(second), sys.executable, "-c", _ECHO], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout.readline() == "up\n"
            assert asked() >= 2 * _DELAY_MS
            hosts.disturb("delay 20ms")
            assert asked() >= 40
            hosts.disturb(f"delay {_DELAY_MS}ms")
            hosts.cut_off(second)
            assert [host.state for host in hosts.hosts] == ["up", "cut off"]
            assert asked() is None
            hosts.reconnect(second)
            wait_for(lambda: asked() is not None, "an answer", _DEADLINE_S)
        finally:
            server.kill()


@pytest.mark.slow
@_NEEDS_ROOT
def test_a_job_goes_on_without_a_host_that_is_cut_off_and_uses_it_when_it_is_back(hosts):
    first, second = hosts.hosts
    with _jobs(hosts.master) as run:
        wait_for(lambda: run() == [first.address, second.address], "tasks on both hosts", _DEADLINE_S)
        hosts.cut_off(second)
        assert run() == [first.address]
        hosts.reconnect(second)
        wait_for(lambda: run() == [first.address, second.address], "tasks on both hosts again", 2 * _DEADLINE_S)


@_NEEDS_ROOT
def test_a_host_is_added_and_removed_and_its_number_is_not_used_again(hosts):
    third = hosts.add_host()
    assert third.worker is not None
    hosts.kill_host(third)
    assert [host.number for host in hosts.hosts] == [1, 2]
    assert hosts.all_hosts()[-1].state == "gone"
    for command in (hosts.remove_host, hosts.cut_off, hosts.reconnect):
        with pytest.raises(UsageError, match=r"The cluster has no host 3\."):
            command(third)
    fourth = hosts.add_host()
    assert fourth.number == 4
    hosts.remove_host(fourth)


@_NEEDS_ROOT
def test_the_disk_of_a_host_fills_up_alone(hosts):
    first, second = hosts.hosts
    filler = hosts.fill_disk(first)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        (first.state_dir / "more").write_bytes(b"x" * 8192)
    (second.state_dir / "more").write_bytes(b"x" * 8192)
    filler.unlink()
    (first.state_dir / "more").write_bytes(b"x" * 8192)
