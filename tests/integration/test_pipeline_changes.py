"""The pipeline of a query on real Spark and Kafka changes while it runs, in both modes, also from another process."""

import os
import signal
from pathlib import Path

import pytest
from counts import Counts
from pipeline import Pipeline, await_true
from real_time import RealTimeQuery
from recount import Broken, First, Second, all_of_it, nothing, to_second

from harness.run import change
from harness.run.change import insert, remove, replace, show
from impls.errors import UsageError

RECOUNT = Path(__file__).parents[1] / "recount.py"
CODE = str(RECOUNT)
DEADLINE_S = 120


@pytest.fixture
def pipeline(spark, kafka, topic_factory, tmp_path):
    """A key-count over entries; whatever still runs at the end of the test is stopped."""
    run = Pipeline(
        spark, kafka, (topic_factory(2), topic_factory(4)), tmp_path / "run", "megaphone-fluid", "hash",
        operator=First(), py_files=(RECOUNT,),
    )  # fmt: skip
    yield run
    if run.handle is not None and not run.handle.await_end(0):
        run.stop()


@pytest.mark.capability
@pytest.mark.spark
def test_code_and_state_change_while_bins_move_and_results_stay_right(pipeline):
    handle = pipeline.start()
    pipeline.send(2000)
    pipeline.await_applied()
    refused = handle.replace(Broken())
    pipeline.send(200)
    assert "no idea what to do with" in handle.await_change(refused, DEADLINE_S)["why"]
    changed = handle.replace(Second(), migrate=to_second, budget_bytes=4096)
    handle.rescale(4)
    for _ in range(3):
        pipeline.send(1000)
    assert handle.await_change(changed, DEADLINE_S)["state"] == "done"
    assert pipeline.await_migration()
    pipeline.send(500)
    pipeline.await_applied()
    assert [version["bins"] for version in handle.pipeline()] == [0, 0, 16]
    pipeline.stop()
    handle = pipeline.start()  # the checkpoint has the code: the operator given is the one it began with
    pipeline.send(500)
    pipeline.await_applied()
    assert handle.pipeline()[-1]["operator"] == "Second"
    pipeline.stop()
    assert pipeline.check(migrations=1)["verdict"] == "valid"


@pytest.mark.lengthy
def test_in_real_time_mode_another_process_changes_the_pipeline_and_a_worker_is_killed(
    kafka, topic_factory, tmp_path, capsys
):
    topics = (topic_factory(2), topic_factory(4))
    counts = Counts(kafka, topics)
    query = RealTimeQuery(kafka, topics, tmp_path / "run", slots=4, batch="600 seconds", recount=True)
    checkpoint = str(tmp_path / "run" / "checkpoint")
    counts.send_and_await(500)
    pid = query.ask("status")["pids"]["0"]
    request = {"checkpoint": checkpoint, "wait": 0}
    replace(code=f"{CODE}:Second", migrate="to_second", back="to_first", lazy=False, budget=1000, **request)
    query.ask("rescale", workers=3)
    counts.send(300)
    os.kill(pid, signal.SIGKILL)
    counts.send_and_await(300)
    assert query.ask("await_migration")["done"]
    await_true(lambda: versions(checkpoint)[1]["bins"] == 16, "all bins to have gone over", DEADLINE_S)

    assert insert(code=f"{CODE}:nothing", before=None, checkpoint=checkpoint, wait=DEADLINE_S) == 0
    sent, before, arrived = counts.sent, counts.counted(), query.ask("status")["arrived"]
    counts.send(100)
    await_true(lambda: query.ask("status")["arrived"] == arrived + 100, "the filter to have seen them", DEADLINE_S)
    assert remove(name="nothing", checkpoint=checkpoint, wait=DEADLINE_S) == 0
    counts.send(100)
    await_true(lambda: counts.counted() >= before + 100, "what came behind the filter", DEADLINE_S)
    assert counts.counted() == before + 100 == sent + 100
    with pytest.raises(UsageError, match="The pipeline has no step 'nothing'; it has none"):
        replace(code=f"{CODE}:all_of_it", migrate=None, back=None, lazy=False, budget=1, **request)
    assert show(checkpoint) == 0
    assert "insert nothing" in capsys.readouterr().out
    query.end()
    counts.close()


def versions(checkpoint):
    return change.ask(checkpoint, {"do": "pipeline"})["versions"]


@pytest.mark.parametrize(("code", "sentence"), [
    ("nowhere.py:Second", "names no file and name in it"),
    (f"{CODE}:Third", "has no 'Third'"),
    (f"{CODE}:to_second", "is a function and no operator or step"),
])  # fmt: skip
def test_code_that_cannot_be_found_is_refused_with_a_sentence(tmp_path, code, sentence):
    with pytest.raises(UsageError, match=sentence):
        replace(checkpoint=str(tmp_path), code=code, migrate=None, back=None, lazy=False, budget=1, wait=0)
    assert nothing.name == all_of_it.name
