"""Python workers are there, one for each slot and connected, before a query's first epoch."""

import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from pipeline import await_true

from harness.lab.processes import python_workers
from impls.spark.readiness import warm_workers
from impls.worker import output as outbox
from impls.worker.output import Output
from impls.worker.sinks import Nowhere

pytestmark = pytest.mark.spark


def test_each_slot_gets_a_worker_of_its_own_that_knows_the_broker(spark, kafka, topic_factory):
    output = Output(kafka, topic_factory(4), 4)
    slots = spark.sparkContext.defaultParallelism
    assert warm_workers(spark, output) == slots == 4
    workers = set(python_workers(os.getpid()))
    assert len(workers) >= slots

    def known(batches):
        import pyarrow as pa
        from pyspark import BarrierTaskContext

        list(batches)
        BarrierTaskContext.get().barrier()
        yield pa.RecordBatch.from_pydict({"pid": [os.getpid()], "producers": [len(outbox._clients)]})

    table = spark.range(0, slots, 1, slots)
    rows = table.mapInArrow(known, "pid long, producers long", barrier=True).collect()
    assert {row["pid"] for row in rows} <= workers
    assert all(row["producers"] >= 1 for row in rows)


def test_slots_that_another_query_has_are_not_waited_for(spark, tmp_path):
    begun, over = tmp_path / "begun", tmp_path / "over"
    begun.mkdir()

    def hold(batches):
        import time
        from pathlib import Path

        (begun / str(os.getpid())).touch()
        deadline = time.monotonic() + 60
        while not Path(over).exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        yield from batches

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(spark.range(0, 3, 1, 3).mapInArrow(hold, "id long").collect)
        await_true(lambda: len(list(begun.iterdir())) == 3, "three of four slots to be taken")
        try:
            assert warm_workers(spark, Nowhere()) == 1
        finally:
            over.touch()
        assert len(other.result(60)) == 3


def test_a_broker_that_is_not_there_is_left_to_the_first_epoch(monkeypatch):
    monkeypatch.setattr(outbox, "_CONNECT_DEADLINE_S", 0.1)
    Output("127.0.0.1:1", "nowhere", 1, {"log_level": "0"}).connect()
    outbox.close_producers()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="where a process tells what it has mapped")
def test_the_session_takes_the_archive_of_classes_that_a_whole_run_makes(spark):
    archive = re.search(r"SharedArchiveFile=(\S+)", os.environ.get("SPARK_SUBMIT_OPTS", ""))
    if archive is None:
        pytest.skip("only a run of the whole suite makes it")
    jvm = psutil.Process(spark.sparkContext._gateway.proc.pid)
    if not Path(archive[1]).exists() or Path(archive[1]).stat().st_ctime > jvm.create_time():
        pytest.skip("it was made after the session had begun, as in the first run of a machine")
    assert archive[1] in {part.path for part in jvm.memory_maps()}
