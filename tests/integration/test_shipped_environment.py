"""Executors without a Python of this project get one; what they lack is said in a sentence; a user's module is sent."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.lab.hosts.cluster import cluster as hosts

_ROOT = Path(__file__).resolve().parents[2]
_OWN_MODULE = """
from impls.operators import StatefulMap

class Total(StatefulMap):
    columns = ("amount",)

    def update(self, key, record, state):
        return (state or 0) + record["amount"], {"total": state}
"""
_PROBE = """
import json, sys
from pathlib import Path
from harness.lab.bringup import open_session, stop_session
from impls.errors import UsageError
from impls.spark.readiness import check_executors
from impls.spark.shipping import equip

def said(function, *arguments):
    try:
        function(*arguments)
    except UsageError as error:
        return str(error)
    return "nothing"

def look(_):
    import gc, sys
    yield sys.executable, gc.get_freeze_count() > 0, "impls.spark.step" in sys.modules

master, bare, module = sys.argv[1:]
spark = open_session("shipping", 2, master=master)
context = spark.sparkContext
shipped = context.pythonExec
answers = {"look": context.parallelize(range(2), 2).mapPartitions(look).collect()}
sys.path.insert(0, str(Path(module).parent))
from own_totals import Total
answers["unknown module"] = said(equip, spark, Total(), [])
answers["no such file"] = said(equip, spark, Total(), ["nowhere.py"])
answers["sent module"] = said(equip, spark, Total(), [module])
for what, program in (("bare", bare), ("gone", "/nowhere/python")):
    context.pythonExec = program
    answers[what] = said(check_executors, spark)
context.pythonExec = shipped
answers["again"] = said(check_executors, spark)
stop_session(spark)
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with hosts(2, folder=tmp_path_factory.mktemp("cluster"), isolated=False, cores=1) as started:
        yield started


def _without_python(*command):
    """Runs a program whose executors find no Python where the driver's environment names it."""
    environment = {**os.environ, "PYTHONPATH": str(_ROOT), "PYSPARK_PYTHON": "/nowhere/python"}
    return subprocess.run(
        [sys.executable, *command], cwd=_ROOT, env=environment, capture_output=True, text=True, timeout=240, check=False
    )


def test_executors_without_python_get_one_and_the_rest_is_said_in_sentences(cluster, tmp_path):
    (tmp_path / "own_totals.py").write_text(_OWN_MODULE)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    bare = tmp_path / "bare" / "bin" / "python"
    done = _without_python("-c", _PROBE, cluster.master, str(bare), str(tmp_path / "own_totals.py"))
    assert done.returncode == 0, done.stderr[-3000:]
    answers = json.loads(done.stdout.splitlines()[-1])
    assert len({program for program, _, _ in answers["look"]}) == 2, "each executor has unpacked one"
    for program, frozen, imported in answers["look"]:
        assert "/environment/bin/python3." in program
        assert (frozen, imported) == (True, True), "its daemon imports a step's libraries before it forks"
    assert answers["unknown module"] == (
        "The executors cannot import the module own_totals: name its file in py_files of impls.stream."
    )
    assert answers["no such file"].startswith("nowhere.py in py_files is neither a .py or .zip file")
    assert (answers["sent module"], answers["again"]) == ("nothing", "nothing")
    assert answers["bare"].startswith(f"The Python {bare} of the executors at ")
    assert " cannot import confluent_kafka, google.protobuf.message, lmdb, numpy, " in answers["bare"]
    assert answers["gone"].startswith(
        "The executors cannot start the Python /nowhere/python (No such file or directory)"
    )


def test_a_bench_that_ships_nothing_says_what_executors_lack(cluster, tmp_path):
    done = _without_python(
        "-P", "-m", "invoke", "bench", "--quick", "--mechanism", "none", "--archive", "none",
        "--master", cluster.master, "--output", str(tmp_path / "results"),
    )  # fmt: skip
    assert done.returncode == 2, done.stdout[-3000:] + done.stderr[-2000:]
    assert "The executors cannot start the Python /nowhere/python (No such file or directory)" in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["megaphone-batched", "native-repartition"])
def test_a_run_with_a_shipped_environment_is_valid(cluster, tmp_path, mechanism):
    done = _without_python(
        "-P", "-m", "invoke", "bench", "--quick", "--mechanism", mechanism, "--workload", "hash", "--master",
        cluster.master, "--keys", "20k", "--rate", "1k", "--duration", "8", "--output", str(tmp_path / "results"),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    [result] = (tmp_path / "results").glob("*/result.json")
    [run] = json.loads(result.read_text())["runs"]
    assert (run["verdict"], run["lost"], run["doubled"]) == ("valid", 0, 0)
