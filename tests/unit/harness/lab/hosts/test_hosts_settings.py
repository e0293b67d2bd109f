"""What a cluster can be; on which addresses its hosts are."""

import ipaddress
import subprocess
import sys

import psutil
import pytest

from harness.lab.hosts.isolated import free_subnets
from harness.lab.hosts.programs import HOST_VARIABLE, processes_of
from harness.lab.hosts.settings import Settings
from impls.errors import UsageError


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"hosts": -1}, "The number of hosts must be from 0 to 64, not -1."),
        ({"hosts": 65}, "The number of hosts must be from 0 to 64, not 65."),
        ({"hosts": 1, "cores": 0}, "The number of cores of a host must be at least 1, not 0."),
        ({"hosts": 1, "memory": "lots"}, "A host's memory must be a size such as 512m or 2g, not 'lots'."),
        ({"hosts": 1, "disk": "0m", "isolated": True}, "A host's disk must be a size such as 512m or 2g, not '0m'."),
        ({"hosts": 1, "netem": "delay 1ms"}, "A network or disk of its own needs hosts in namespaces: run as root"),
        ({"hosts": 1, "disk": "8m"}, "A network or disk of its own needs hosts in namespaces: run as root"),
        ({"hosts": 1, "netem": "slow", "isolated": True}, "The network 'slow' cannot be read"),
    ],
)
def test_what_no_cluster_can_be_is_refused(given, says):
    with pytest.raises(UsageError) as caught:
        Settings(**given)
    assert str(caught.value).startswith(says)


def test_settings_survive_their_file(tmp_path):
    settings = Settings(3, 4, "2g", "delay 1ms", "64m", isolated=True)
    settings.write(tmp_path / "settings.json")
    assert Settings.read(tmp_path / "settings.json") == settings


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has namespaces")
def test_subnets_that_are_in_use_are_not_free():
    used = [
        ipaddress.IPv4Interface(f"{address.address}/{address.netmask}").network
        for addresses in psutil.net_if_addrs().values() for address in addresses
        if address.family.name == "AF_INET" and address.netmask
    ]  # fmt: skip
    free = free_subnets()
    assert free
    assert set(free) <= set(range(256))
    assert not [n for n in free for network in used if network.overlaps(ipaddress.IPv4Network(f"198.18.{n}.0/24"))]


def test_processes_are_known_by_their_host_s_mark(tmp_path):
    started = [
        subprocess.Popen(["sleep", "100"], env={HOST_VARIABLE: f"{tmp_path}{mark}"})
        for mark in ("#1", "#1", "#2", "#supervisor", "-other#1")
    ]
    pids = [process.pid for process in started]
    try:
        assert sorted(one.pid for one in processes_of(tmp_path, 1)) == sorted(pids[:2])
        assert sorted(one.pid for one in processes_of(tmp_path)) == sorted(pids[:4])
    finally:
        for process in started:
            process.kill()
            process.wait()
    assert processes_of(tmp_path) == []
