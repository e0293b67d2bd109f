"""What is sent to executors is checked before a session starts, and a user's own settings stay."""

import pytest

from harness.setup.pack import archive_of
from impls.errors import UsageError
from impls.spark.shipping import check_archive, cluster_settings


def test_the_code_comes_first_in_the_path_and_the_user_s_own_stays():
    given = {"spark.executorEnv.PYTHONPATH": "/opt/own", "spark.executor.cores": "2"}
    assert cluster_settings(given) == {
        "spark.executorEnv.PYTHONPATH": "impls.zip:/opt/own",
        "spark.executor.cores": "2",
    }
    assert cluster_settings({}) == {"spark.executorEnv.PYTHONPATH": "impls.zip"}


@pytest.mark.parametrize(
    ("given", "says"),
    [("missing.tar.gz", "There is no archive missing.tar.gz: ./inv cluster.pack makes one"),
     ("environment", "environment is no archive that Spark unpacks: its name ends with none of .zip, .tar,")],
)  # fmt: skip
def test_what_is_no_archive_is_refused(tmp_path, monkeypatch, given, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "environment").mkdir()
    for check in (check_archive, archive_of):
        with pytest.raises(UsageError, match=says):
            check(given)


def test_an_archive_elsewhere_is_left_to_spark_to_find(tmp_path):
    (tmp_path / "own.tgz").touch()
    for given in ("s3a://bucket/environment.tar.gz", "hdfs:///environment.zip", str(tmp_path / "own.tgz")):
        assert archive_of(given) == given
    assert archive_of("none") is None
    assert callable(archive_of("auto"))
