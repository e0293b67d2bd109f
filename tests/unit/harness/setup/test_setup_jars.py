"""Jars: what is in the cache is used, what is wrong or half there never is; Ivy is real, its repository a folder."""

import hashlib
import signal
import subprocess
import sys
import time

import pytest

from harness.setup import java
from impls.errors import UsageError

IVY = """<ivy-module version="2.0"><info organisation="t" module="t"/>
<configurations><conf name="spark"/><conf name="broker"/></configurations>
<dependencies><dependency org="org.t" name="one" rev="1" transitive="false" conf="{use}->*">
<artifact name="one" type="jar"/></dependency></dependencies></ivy-module>"""
SETTINGS = """<ivysettings><settings defaultResolver="here"/><resolvers><filesystem name="here">
<artifact pattern="{root}/repository/[artifact]-[revision].[ext]"/></filesystem></resolvers></ivysettings>"""


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository folder with one jar; returns (description, sums)."""
    (tmp_path / "repository").mkdir()
    (tmp_path / "repository" / "one-1.jar").write_bytes(b"a jar")
    (tmp_path / "settings.xml").write_text(SETTINGS.format(root=tmp_path))
    description, sums = tmp_path / "jars.xml", tmp_path / "jars.sha256"
    description.write_text(IVY.format(use="spark"))
    sums.write_text(f"{hashlib.sha256(b'a jar').hexdigest()}  spark/one-1.jar\n")
    monkeypatch.setenv("RESCALE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("RESCALE_IVY_SETTINGS", str(tmp_path / "settings.xml"))
    return description, sums


def test_a_second_call_needs_neither_repository_nor_java(repository, tmp_path, monkeypatch):
    first = java.ensure_jars(*repository)
    assert first.spark[0].read_bytes() == b"a jar"
    assert first.broker == ()
    monkeypatch.setenv("RESCALE_IVY_SETTINGS", str(tmp_path / "gone.xml"))
    monkeypatch.setenv("PATH", "")
    began = time.perf_counter()
    assert java.ensure_jars(*repository) == first
    assert time.perf_counter() - began < 0.05


def test_a_wrong_sum_is_refused_and_nothing_stays(repository, tmp_path):
    description, sums = repository
    sums.write_text(f"{'0' * 64}  spark/one-1.jar\n")
    with pytest.raises(UsageError, match=r"spark/one-1\.jar is not the one .*sha256.*fetch\.log"):
        java.ensure_jars(description, sums)
    assert {path.name for path in (tmp_path / "cache").iterdir()} == {".lock", "fetch.log"}


def test_a_failed_fetch_names_its_log(repository, tmp_path):
    (tmp_path / "repository" / "one-1.jar").unlink()
    with pytest.raises(UsageError, match=r"could not be fetched: see .*fetch\.log"):
        java.ensure_jars(*repository)
    assert not list((tmp_path / "cache").glob("jars-*"))


@pytest.mark.lengthy
def test_a_jar_that_shrank_in_the_cache_is_fetched_again(repository):
    jar = java.ensure_jars(*repository).spark[0]
    jar.write_bytes(b"a")
    assert java.ensure_jars(*repository).spark[0].read_bytes() == b"a jar"


@pytest.mark.lengthy
def test_a_fetch_cut_off_by_kill_is_never_used_and_cleared_by_the_next(repository, tmp_path):
    script = (
        "import os, signal, sys; from pathlib import Path; from harness.setup import java\n"
        "java._check = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "java.ensure_jars(Path(sys.argv[1]), Path(sys.argv[2]))"
    )
    done = subprocess.run([sys.executable, "-c", script, *map(str, repository)], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    cache = tmp_path / "cache"
    assert list(cache.glob("partial-*"))
    assert not list(cache.glob("jars-*"))
    assert java.ensure_jars(*repository).spark[0].read_bytes() == b"a jar"
    assert not list(cache.glob("partial-*"))


def test_a_settings_file_that_is_not_there_is_named(repository, monkeypatch):
    monkeypatch.setenv("RESCALE_IVY_SETTINGS", "/nowhere/settings.xml")
    with pytest.raises(UsageError, match=r"RESCALE_IVY_SETTINGS names /nowhere/settings\.xml"):
        java.ensure_jars(*repository)


def test_the_project_knows_a_sum_for_every_use():
    assert {name.split("/")[0] for name in java.read_sums()} == {"spark", "broker"}
    assert all(len(digest) == 64 for digest in java.read_sums().values())
