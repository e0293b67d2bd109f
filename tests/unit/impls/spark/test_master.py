"""The address of Spark's master: bad ones are refused in one sentence before anything starts."""

import socket

import pytest

from impls.errors import UsageError
from impls.spark.master import check_master, check_retries, is_local, standalone_addresses


@pytest.mark.parametrize(
    "master",
    ["spark:127.0.0.1:7077", "spark://", "spark://host", "spark://host:port", "spark://host:70777", "127.0.0.1:7077",
     "spark://host:7077/path", "spark://a:1,b", "http://127.0.0.1:8080", "cluster", "", "local[", "local[x,4]"],
)  # fmt: skip
def test_what_is_no_master_is_refused(master):
    with pytest.raises(UsageError, match="is no Spark master: give spark://HOST:PORT") as caught:
        check_master(master)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("master", [None, "local[4,4]", "local[*, 4]", "yarn", "k8s://https://host:6443"])
def test_a_master_that_is_no_standalone_one_is_not_asked(master):
    check_master(master)


@pytest.mark.parametrize("master", ["local", "local[4]", "local[*]"])
def test_a_master_that_never_retries_a_task_is_refused(master):
    for check in (check_master, check_retries):
        with pytest.raises(UsageError, match="never retries a task"):
            check(master)


def test_an_address_where_nothing_listens_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        check_master(f"spark://127.0.0.1:{port}")
        check_master(f"spark://127.0.0.1:1,127.0.0.1:{port}")  # a master in reserve may be down
    with pytest.raises(UsageError, match=rf"No Spark master listens at spark://127\.0\.0\.1:{port} \(Connection ref"):
        check_master(f"spark://127.0.0.1:{port}")


def test_a_host_without_an_address_is_refused():
    for host in ("no-such-host.invalid", "a" * 64):
        with pytest.raises(UsageError, match="No Spark master listens at"):
            check_master(f"spark://{host}:7077")


def test_only_a_master_in_the_drivers_process_is_local():
    assert [is_local(m) for m in (None, "local", "local[2,4]", "local-cluster[2,1,1024]", "spark://a:1")] == [
        True, True, True, False, False,
    ]  # fmt: skip
    assert standalone_addresses("spark://a:1,b:2") == [("a", 1), ("b", 2)]
    assert standalone_addresses("yarn") == []
