"""Which Spark and which Python a session starts with, and how many files it may open."""

import resource

import pytest

from impls import sockets
from impls.spark.session import is_another, local_location


def home(folder, core="spark-core_2.13-4.3.0.jar", submit=True):
    (folder / "jars").mkdir(parents=True)
    (folder / "jars" / core).touch()
    if submit:
        (folder / "bin").mkdir()
        (folder / "bin" / "spark-submit").touch()
    return folder


def test_a_home_of_another_version_is_not_used_and_one_of_the_same_is(tmp_path):
    own = home(tmp_path / "own")
    assert is_another(tmp_path / "none", own)
    assert is_another(home(tmp_path / "old", "spark-core_2.13-4.0.1.jar"), own)
    assert not is_another(home(tmp_path / "same"), own), "its settings and further jars count"
    assert not is_another(tmp_path / "none", home(tmp_path / "source", submit=False)), "pyspark is that home's own"


def test_a_local_folder_is_one_whatever_hadoops_default_is():
    assert local_location("/a b/c") == "file:///a b/c"
    assert local_location("s3a://bucket/c") == "s3a://bucket/c"


@pytest.mark.parametrize(("most", "taken", "limit"), [(4_096, 4_096, 4_096), (resource.RLIM_INFINITY, 10_240, 10_240)])
def test_as_many_files_as_the_system_takes_may_be_open(monkeypatch, most, taken, limit):
    """macOS has no limit as its hard one, and takes none as the soft one."""

    def set_limit(_what, limits):
        if limits[0] == resource.RLIM_INFINITY or limits[0] > taken:
            raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(sockets.resource, "getrlimit", lambda _what: (256, most))
    monkeypatch.setattr(sockets.resource, "setrlimit", set_limit)
    assert sockets.raise_file_limit() == limit
