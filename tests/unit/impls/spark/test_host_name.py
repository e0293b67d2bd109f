"""A host has the name under which others reach it, as the cluster's manager tells it."""

import socket

import pytest

from impls.spark.readiness import host_name

_NAMES = ("SPARK_LOCAL_HOSTNAME", "SPARK_LOCAL_IP", "SPARK_EXECUTOR_POD_IP", "NM_HOST")


@pytest.mark.parametrize("first", range(len(_NAMES)))
def test_what_is_closest_to_the_user_names_the_host(monkeypatch, first):
    for name in _NAMES[:first]:
        monkeypatch.setenv(name, "")
    for name in _NAMES[first:]:
        monkeypatch.setenv(name, f"as-{name}")
    assert host_name() == f"as-{_NAMES[first]}"


def test_without_a_manager_s_word_it_is_the_machine_s_own_name(monkeypatch):
    for name in _NAMES:
        monkeypatch.delenv(name, raising=False)
    assert host_name() == socket.gethostname()
