"""The Redis server of a run: it starts, keeps what it was given as its durability says, and ends."""

import os
import signal
import socket
import time

import psutil
import pytest
import redis

from harness.lab.processes import lives
from harness.lab.redis_server import RedisServer
from impls.errors import StateError, UsageError
from impls.mechanisms.external.client import check_server, reach


def killed(server):
    os.kill(server.pid, signal.SIGKILL)
    end = time.monotonic() + 20
    while lives(server.pid):
        assert time.monotonic() < end, "the server does not end"
        time.sleep(0.01)


@pytest.mark.parametrize(("durability", "kept"), [("none", None), ("process", b"1"), ("host", b"1")])
def test_what_was_answered_survives_the_server_as_its_durability_says(tmp_path, durability, kept):
    with RedisServer(tmp_path / "data", durability) as server, redis.Redis.from_url(server.url) as client:
        assert client.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"
        assert durability == "none" or client.config_get("appendfsync")["appendfsync"] != "everysec", "it answers first"
        client.set("a", 1)
        killed(server)
        server.restart()
        assert client.get("a") == kept
    with RedisServer(tmp_path / "data", durability) as again, redis.Redis.from_url(again.url) as client:
        assert client.get("a") == kept


def test_a_stopped_server_leaves_no_process_and_gets_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr("impls.mechanisms.external.client._RETRIES", 0)
    with RedisServer(tmp_path) as server:
        pid = server.pid
        check_server(server.url)
    assert not psutil.pid_exists(pid)
    assert server.pid is None
    with pytest.raises(UsageError, match="does not answer"):
        check_server(server.url)


@pytest.mark.lengthy
def test_a_server_that_cannot_start_says_why(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(UsageError, match=r"^The Redis server cannot be started in"):
        RedisServer(file).start()
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    taken.listen()
    monkeypatch.setattr("harness.lab.redis_server.free_ports", lambda _host: [taken.getsockname()[1]])
    with pytest.raises(UsageError, match=r"^The Redis server found its port \d+ taken 5 times"):
        RedisServer(tmp_path / "data").start()
    taken.close()


def test_a_server_that_may_throw_state_away_is_refused(tmp_path):
    with RedisServer(tmp_path, "none") as server, redis.Redis.from_url(server.url) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        with pytest.raises(UsageError, match=r"may throw state away .* set it to noeviction"):
            check_server(server.url)
        client.config_set("maxmemory", 1)
        client.config_set("maxmemory-policy", "noeviction")
        with pytest.raises(StateError, match=r"refuses a request: .*used memory"), reach(server.url):
            client.set("a", bytes(10_000))


def test_a_password_is_in_the_address_or_in_the_environment(tmp_path, monkeypatch):
    with RedisServer(tmp_path) as server, redis.Redis.from_url(server.url) as admin:
        admin.config_set("requirepass", "open-sesame-1905")
        other = server.url.replace("/0", "/1")
        with pytest.raises(UsageError, match="does not accept the login") as error:
            check_server(server.url)
        monkeypatch.setenv("RESCALE_REDIS_PASSWORD", "open-sesame-1905")
        check_server(other)
        check_server(server.url.replace("//", "//:open-sesame-1905@"))
        monkeypatch.setenv("RESCALE_REDIS_PASSWORD", "another-word")
        with pytest.raises(UsageError, match="does not accept the login") as wrong:
            check_server(server.url.replace("/0", "/2"))
        assert not [found for found in (error, wrong) if "sesame" in str(found.value) or "another" in str(found.value)]
