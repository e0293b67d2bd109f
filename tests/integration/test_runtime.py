"""The runtime on real Spark and Kafka: faults, idle input, restarts; judged by the oracle (mechanisms: conformance)."""

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from pipeline import Pipeline, await_true

from harness.run.history import run_history
from impls.driver.journal import read_journal
from impls.errors import UsageError
from impls.operators import DenseCount
from impls.store.environment import store_path

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[2]


@pytest.fixture
def pipeline(spark, kafka, topic_factory, tmp_path):
    """pipeline(mechanism, ...) makes a pipeline; whatever still runs at the end of the test is stopped."""
    made: list[Pipeline] = []

    def make(mechanism: str, **more) -> Pipeline:
        made.append(Pipeline(spark, kafka, (topic_factory(2), topic_factory(4)), tmp_path / "run", mechanism, **more))
        return made[-1]

    yield make
    for one in made:
        if one.handle is not None and not one.handle.await_end(0):
            one.stop()


@pytest.mark.capability("before its commit")
@pytest.mark.parametrize("place", ["before its commit", "behind its commit"])
def test_a_python_worker_killed_during_a_migration_is_replaced_and_nothing_is_lost(pipeline, tmp_path, place):
    deadly = tmp_path / "kill"

    @dataclass(frozen=True)
    class Deadly(DenseCount):
        """Kills its process with -9 once, when the file is there: in the step, or while results are read back."""

        def apply(self, records, state):
            from impls.worker import output as outbox

            if deadly.exists():
                if place == "before its commit":
                    deadly.unlink()
                    os.kill(os.getpid(), signal.SIGKILL)

                def send(*_args, **_more):
                    deadly.unlink()
                    os.kill(os.getpid(), signal.SIGKILL)

                outbox.Output.send = send
            return super().apply(records, state)

    run = pipeline("megaphone-fluid", operator=Deadly(4096))
    run.send(500)
    query = run.start()
    run.await_applied()
    query.rescale(4)
    await_true(lambda: query.status()["misplaced"] in range(1, 8), "the migration to be under way")
    deadly.touch()
    run.send(500)
    run.await_applied()
    assert query.await_migration(60), query.status()
    assert not deadly.exists(), "no worker was killed"
    run.stop()
    assert sum(line["retries"] for line in run.epochs()) >= 1
    run.assert_valid(1)


def test_a_migration_completes_while_the_input_is_idle_also_with_an_operator_that_is_broadcast(pipeline):
    @dataclass(frozen=True)
    class Large(DenseCount):
        """Spark sends what is longer than 1 MiB to its tasks as a broadcast."""

        table: bytes = os.urandom(2 << 20)

    run = pipeline("megaphone-batched", operator=Large(4096), options={"bins_per_pair": 2})
    run.send(500)
    query = run.start()
    run.await_applied()
    query.rescale(4)
    assert query.await_migration(60), query.status()
    assert query.status()["bins"] == [4, 4, 4, 4]
    run.stop()  # a migration ends a moment before the line of its last epoch is written
    assert len([line for line in run.epochs() if line["migrating"]]) > 1


@pytest.mark.capability
def test_a_stopped_query_goes_on_where_it_was_also_in_the_middle_of_a_migration(pipeline):
    run = pipeline("megaphone-fluid")
    run.send(1000)
    query = run.start()
    run.await_applied()
    query.rescale(4)
    await_true(lambda: 0 < query.status()["misplaced"] < 8, "the migration to be half done")
    run.stop()
    with pytest.raises(UsageError, match="ended"):
        query.rescale(2)
    run.send(1000)
    query = run.start()
    assert query.await_migration(60), query.status()
    run.await_applied()
    run.stop()
    run.assert_valid(1)


def test_a_query_goes_on_from_its_checkpoint_alone_with_another_number_of_workers(pipeline):
    run = pipeline("megaphone-all-at-once", workload="hash")
    run.send(1500)
    run.start()
    run.await_applied()
    run.stop()
    shutil.rmtree(run.folder / "state")
    run.send(1000)
    query = run.start()
    query.rescale(5)
    assert query.await_migration(60), query.status()
    run.await_applied()
    assert query.status()["workers"] == 5
    run.stop()
    assert sum(line["recovered"] for line in run.epochs()) >= 2
    run.assert_valid(1)


@pytest.mark.capability
def test_a_worker_whose_state_is_deleted_is_rebuilt_while_the_query_runs(pipeline, capsys):
    run = pipeline("megaphone-fluid", replay_epochs=10)
    run.send(1000)
    query = run.start()
    run.await_applied()
    query.rescale(4)
    await_true(lambda: 0 < query.status()["misplaced"] < 8, "the migration to be half done")
    shutil.rmtree(store_path(run.folder / "state", 0))
    run.send(1000)
    run.await_applied()
    assert query.await_migration(60), query.status()
    run.stop()
    assert sum(line["recovered"] for line in run.epochs()) >= 1
    run.assert_valid(1)
    assert run_history(str(run.folder / "checkpoint"), as_json=True, limit=1) == 0
    rescale, *losses = map(json.loads, capsys.readouterr().out.splitlines())
    assert (rescale["cause"], rescale["workers_after"], rescale["outcome"]) == ("command", 4, "done")
    assert rescale["moved_bins"] == rescale["planned_bins"]
    assert {loss["cause"] for loss in losses} == {"loss"}


@pytest.mark.capability
def test_a_second_process_asks_and_commands(pipeline):
    run = pipeline("megaphone-all-at-once")
    run.send(100)
    query = run.start()
    run.await_applied()
    command = [sys.executable, "-m", "impls.driver.control", str(run.folder / "checkpoint")]
    told = subprocess.run([*command, "rescale", "4"], capture_output=True, text=True, cwd=ROOT, timeout=30, check=False)
    assert told.returncode == 0, told.stderr
    assert query.await_migration(60)
    asked = subprocess.run([*command, "status"], capture_output=True, text=True, cwd=ROOT, timeout=30, check=False)
    assert '"workers": 4' in asked.stdout
    bad = subprocess.run([*command, "rescale", "99"], capture_output=True, text=True, cwd=ROOT, timeout=30, check=False)
    assert (bad.returncode, bad.stderr.count("\n")) == (2, 1)
    assert "too few for 99 workers" in bad.stderr


def test_another_querys_state_is_refused(pipeline, tmp_path):
    run = pipeline("megaphone-all-at-once")
    run.send(100)
    run.start()
    run.await_applied()
    run.stop()
    run.operator = DenseCount(run.keys // 2)
    with pytest.raises(UsageError, match=r"operator\.keys=4096, not 2048: use the same setting or another checkpoint"):
        run.start()
    run.recorder.close()
    run.operator = None
    (tmp_path / "run" / "checkpoint").rename(tmp_path / "elsewhere")
    before = {path: path.read_bytes() for path in (tmp_path / "run" / "state").glob("*/data.mdb")}
    with pytest.raises(UsageError, match=r"worker-0000 belongs to another query: give this one its own"):
        run.start()
    assert before
    assert {path: path.read_bytes() for path in (tmp_path / "run" / "state").glob("*/data.mdb")} == before
    assert not read_journal(tmp_path / "run" / "checkpoint" / "rescale" / "plan.log")
    run.recorder.close()
