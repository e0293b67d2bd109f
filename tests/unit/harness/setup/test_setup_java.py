"""Which Java is taken, and what is said when there is none."""

import os

import pytest

from harness.setup.java import _major, find_java, java_home, java_version, use_java
from impls.errors import UsageError


@pytest.mark.parametrize(
    ("words", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "24-ea" 2025-03-18', 24),
        ('openjdk version "21" 2023-09-19', 21),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "25.0.1" 2025-10-21', 25),
        ("Unable to locate a Java Runtime.", None),
        ("", None),
    ],
)
def test_the_major_version_is_read(words, version):
    assert _major(words) == version


@pytest.fixture
def fake(tmp_path):
    """Makes a folder with a `bin/java` that claims a version."""

    def make(version: str):
        java = tmp_path / version / "bin" / "java"
        java.parent.mkdir(parents=True)
        java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        java.chmod(0o755)
        return java

    return make


def test_java_home_comes_before_the_path(fake, monkeypatch):
    home, path = fake("21.0.1"), fake("17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(home.parents[1]))
    monkeypatch.setenv("PATH", str(path.parent), prepend=os.pathsep)
    assert find_java() == home


def test_an_old_java_home_gives_way_to_the_path(fake, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(fake("1.8.0_402").parents[1]))
    new = fake("17.0.1")
    monkeypatch.setenv("PATH", str(new.parent), prepend=os.pathsep)
    assert use_java() == new
    assert os.environ["JAVA_HOME"] == str(new.parents[1])


def test_only_an_old_java_is_named_in_one_sentence(fake, monkeypatch):
    old = fake("11.0.2")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(old.parent))
    with pytest.raises(UsageError, match=r"^Java 17 or newer was not found \(.*Java 11\): install it .*JAVA_HOME.*\.$"):
        find_java()


def test_no_java_at_all_says_how_to_get_one(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"^Java 17 or newer was not found: install it"):
        find_java()


def test_a_java_is_asked_once_and_again_when_it_has_changed(fake, monkeypatch, tmp_path):
    java, asked = fake("17.0.1"), tmp_path / "asked"
    java.write_text(f"{java.read_text()}echo >> {asked}\n")
    monkeypatch.setenv("JAVA_HOME", str(java.parents[1]))
    for _ in range(2):
        assert use_java() == java
    assert asked.read_text().count("\n") == 1
    java.write_text(java.read_text().replace("17.0.1", "21.0.1"))
    os.utime(java, (1, 1))
    assert java_version(find_java()) == 21
    assert asked.read_text().count("\n") == 2


def test_the_real_java_tells_its_home():
    java = find_java()
    assert (java_version(java) or 0) >= 17
    assert (java_home(java) / "bin" / "java").exists()
