"""Folders of files as a source: rescaled and killed, every key's records are applied in the files' order."""

import pytest
from foreach_process import SCHEMA, ForeachProcess, start_query
from numbered_files import USERS, Files, calls_in
from pipeline import await_true

import impls
from harness.lab.hosts.cluster import cluster
from impls.driver.control import ask
from impls.errors import UsageError


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


def _looked_at(folder):
    """The counts of all users, each read from the host where its bin is."""
    answers = [ask(folder / "checkpoint", {"do": "state", "key": f"u{user}"}) for user in range(USERS)]
    return {row["key"]: row["value"] for answer in answers for row in answer["rows"]}


def _await_calls(child, folder, epochs):
    """Waits until a process's function has had results of so many epochs."""

    def done():
        assert child.process.poll() is None, child.log.read_text()[-2000:]
        return len({epoch for epoch, _ in calls_in(folder)}) == epochs

    await_true(done, f"{epochs} epochs", 180)


@pytest.mark.capability("parquet")
@pytest.mark.spark
@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_files_are_applied_in_the_order_of_their_times_across_a_rescale(spark, files, tmp_path, kind, capfd):
    for _ in range(9):
        files.write(40, kind=kind)
    calls = []
    sink = impls.ForeachBatch(lambda frame, epoch: calls.append((epoch, sorted(map(tuple, frame.collect())))))
    with start_query(spark, tmp_path, sink, files=3, kind=kind) as query:
        await_true(lambda: query.await_end(0) or len(calls) >= 3, "nine files")
        query.rescale(4)
        for _ in range(6):
            files.write(40, kind=kind)
        last = files.sent - 1
        await_true(lambda: query.await_end(0) or any(row[2] == last for _, rows in calls for row in rows), "all files")
        assert query.await_migration(60)
        assert query.status()["workers"] == 4
    final = {user: (user, n, number) for _, rows in calls for user, n, number in rows}
    assert sorted(final.values()) == sorted({row[0]: row for rows in files.expected(1) for row in rows}.values())
    assert [rows for _, rows in calls[:3]] == files.expected(3)[:3]
    assert "FIELD_NOT_FOUND" not in capfd.readouterr().err, "what is looked for and not there is no error"


@pytest.mark.spark
def test_a_processor_of_sparks_reads_files_and_gives_its_rows_to_a_function(spark, files, tmp_path):
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor
    from pyspark.sql.types import Row

    class Totals(StatefulProcessor):  # here, so that executors get it by value
        def init(self, handle):
            self.count = handle.getValueState("count", "n long")

        def handleInputRows(self, key, rows, timerValues):  # noqa: N802, N803
            (n,) = self.count.get() or (0,)
            numbers = [row.number for row in rows]
            self.count.update((n + len(numbers),))
            yield Row(user=key[0], n=n + len(numbers), last=numbers[-1])

    for _ in range(6):
        files.write(40)
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 3).json(str(files.folder))
    calls = []
    sink = impls.ForeachBatch(lambda frame, epoch: calls.append((epoch, sorted(map(tuple, frame.collect())))))
    with impls.transform_with_state(
        rows.groupBy("user"), Totals(), "user string, n long, last long", "update", "none", results=sink,
        state_dir=tmp_path / "state", checkpoint=tmp_path / "checkpoint", workers=2, bins=16,
    ) as query:  # fmt: skip
        query.rescale(3)
        await_true(lambda: query.await_end(0) or len(calls) == 2, "six files")
        assert query.await_migration(60)
    assert [found for _, found in calls] == files.expected(3)


@pytest.mark.lengthy
def test_a_driver_that_dies_between_the_function_and_the_commit_gives_the_epoch_again(files, tmp_path):
    for _ in range(5):
        files.write(40)
    (tmp_path / "kill").touch()
    assert ForeachProcess(tmp_path).await_end() == -9
    child = ForeachProcess(tmp_path)

    _await_calls(child, tmp_path, 5)
    (tmp_path / "stop").touch()
    assert child.await_end() == 0, child.log.read_text()[-2000:]
    told = calls_in(tmp_path)
    epochs = [epoch for epoch, _ in told]
    assert epochs == sorted(epochs)
    assert len(epochs) == 6, "the epoch in which the driver died comes again, and no other"
    twice = next(epoch for epoch in epochs if epochs.count(epoch) == 2)
    first, second = (rows for epoch, rows in told if epoch == twice)
    assert first == second
    assert [[tuple(row) for row in rows] for rows in dict(told).values()] == files.expected(1)


@pytest.mark.lengthy
def test_on_a_cluster_each_epoch_is_given_whole_across_a_rescale(files, tmp_path):
    for _ in range(3):
        files.write(40)
    with cluster(2, folder=tmp_path / "cluster", isolated=False) as hosts:
        child = ForeachProcess(tmp_path, hosts.master)
        _await_calls(child, tmp_path, 3)
        assert _looked_at(tmp_path) == files.counts()
        ask(tmp_path / "checkpoint", {"do": "rescale", "workers": 4})
        for _ in range(3):
            files.write(40)
            _looked_at(tmp_path)  # while bins are on their way
        _await_calls(child, tmp_path, 6)
        await_true(lambda: _looked_at(tmp_path) == files.counts(), "the last commit", 60)
        (tmp_path / "stop").touch()
        assert child.await_end() == 0, child.log.read_text()[-2000:]
    told = calls_in(tmp_path)
    assert [[tuple(row) for row in rows] for _, rows in told] == files.expected(1)


@pytest.mark.spark
def test_a_source_without_an_order_is_refused_before_anything_is_made(spark, tmp_path):
    def start(frame):
        from impls.operators import HashCount

        return impls.stream(
            frame, key="key", operator=HashCount(), results=None, state_dir=tmp_path / "state",
            checkpoint=tmp_path / "checkpoint", workers=2,
        )  # fmt: skip

    rate = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
    with pytest.raises(UsageError, match=r"no column 'partition'.*needs columns of its own for the order"):
        start(rate.selectExpr("value % 10 as key"))
    with pytest.raises(UsageError, match="no column 'offset'"):
        start(rate.selectExpr("value % 10 as key", "0 as partition"))
    with pytest.raises(UsageError, match=r"takes one of spark\.readStream"):
        start(spark.range(3).selectExpr("id as key"))
    assert not (tmp_path / "checkpoint").exists()
    with start(rate.selectExpr("value % 10 as key", "0 as partition", "value as offset")) as query:
        await_true(lambda: query.await_end(0) or query.metrics()["records"] >= 100, "records of the rate source")


@pytest.mark.spark
def test_a_column_that_an_operator_reads_under_a_name_of_every_record_is_refused(spark, tmp_path):
    rate = spark.readStream.format("rate").load().selectExpr("value % 10 as key", "0 as partition", "value as offset")
    where = {"results": None, "state_dir": tmp_path / "state", "checkpoint": tmp_path / "checkpoint", "workers": 2}
    with pytest.raises(UsageError, match=r"reads a column 'key'.*df\.withColumnRenamed\('key', 'my_key'\)"):
        impls.aggregate(rate, ["key"], {"n": "count(*)"}, **where)
    assert not (tmp_path / "checkpoint").exists()
