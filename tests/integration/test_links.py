"""Results of one query as the input of another: each once and in order, whatever happens to either of them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import chained
import linked
import pytest
from chained import Chained
from linked import Linked, scenario
from linked_operators import Follow
from processes import spawn
from topics import producer_for

import impls
from harness.files import ROOT
from impls.errors import StateError, UsageError

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def run_in_real_time(file, kafka, topics, folder):
    """Runs a scenario in a process of its own and returns what it says."""
    given = json.dumps({"kafka": kafka, "topics": topics, "folder": str(folder)})
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    child = spawn([sys.executable, file, given], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    out, said = child.communicate(timeout=560)
    assert child.returncode == 0, said[-3000:]
    return out


@pytest.fixture
def topics(topic_factory):
    return [topic_factory(2), topic_factory(linked.PARTITIONS), topic_factory(linked.PARTITIONS)]


@pytest.mark.capability
def test_each_result_is_seen_once_by_the_next_query_whatever_happens_to_either(spark, kafka, topics, tmp_path):
    assert scenario(Linked(spark, kafka, topics, tmp_path)) > 100


@pytest.mark.capability
def test_the_same_in_real_time(kafka, topics, tmp_path):
    assert int(run_in_real_time(linked.__file__, kafka, topics, tmp_path).split()[-1]) > 100


@pytest.mark.capability
def test_a_chain_closes_each_window_once_whatever_happens_to_its_stages(spark, kafka, topics, tmp_path):
    chained.scenario(Chained(spark, kafka, topics[:2], tmp_path))


@pytest.mark.capability
def test_a_chain_in_real_time(kafka, topics, tmp_path):
    run_in_real_time(chained.__file__, kafka, topics[:2], tmp_path)


def test_what_cannot_be_read_is_refused_in_a_sentence(spark, kafka, topics, tmp_path):
    output = impls.Output(kafka, topics[1], linked.PARTITIONS)
    with pytest.raises(UsageError, match="a field 'key'"):
        impls.results_of(spark, output, "key string")
    frame = impls.results_of(spark, output, "name long, n long")
    given = {"operator": Follow(""), "results": None, "state_dir": tmp_path / "state", "workers": 2, "bins": 16}
    with pytest.raises(UsageError, match="which hides which of them are repeats"):
        impls.stream(frame.dropDuplicates(), key="name", checkpoint=tmp_path / "one", **given)
    with pytest.raises(UsageError, match="does not tell repeats"):
        impls.stream(
            frame, key="name", checkpoint=tmp_path / "two", mechanism="external-state",
            options={"redis": "redis://127.0.0.1:1/0"}, **given,
        )  # fmt: skip
    producer_for(kafka).produce(topics[1], b"{}", partition=0)
    producer_for(kafka).flush(30)
    query = impls.stream(frame, key="name", checkpoint=tmp_path / "three", **given)
    with pytest.raises(StateError, match=rf"The message at offset 0 of {topics[1]}-0 has no number of a result"):
        query.await_end(60)
    assert Path(tmp_path / "state").exists()
