"""The processes of a host, told apart by what they run."""

import os
import shutil
import subprocess

from processes import spawn

from harness.lab.hosts.programs import HOST_VARIABLE, executors_of, processes_of, worker_of

_WORKER = "org.apache.spark.deploy.worker.Worker"
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


def test_a_worker_is_its_jvm_and_not_what_has_started_it(tmp_path):
    java = tmp_path / "java"
    java.symlink_to(shutil.which("sh"))

    def started(program, *words):
        env = {**os.environ, HOST_VARIABLE: f"{tmp_path}#1"}
        return spawn([program, "-c", "read x", *words], stdin=subprocess.PIPE, env=env).pid

    starter, worker, executor = started("sh", _WORKER), started(java, _WORKER), started(java, _EXECUTOR)
    assert {process.pid for process in processes_of(tmp_path, 1)} == {starter, worker, executor}
    assert worker_of(tmp_path, 1) == worker
    assert executors_of(tmp_path, 1) == [executor]
    assert worker_of(tmp_path, 2) is None
