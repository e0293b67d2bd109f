"""Each example as its reader runs it: it rescales, finds its own results right, and ends cleanly also by Ctrl-C."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from harness.files import ROOT

pytestmark = pytest.mark.lengthy
EXAMPLES = ROOT / "examples"
_DEADLINE_S = 280
_IN_THE_MIDST = re.compile(r"workers: 2\.")


HADOOP = """<configuration><property><name>fs.defaultFS</name><value>hdfs://127.0.0.1:1</value></property></configuration>
"""


def started(name: str, *words: str, folder: Path) -> subprocess.Popen[str]:
    """Starts an example in a process group of its own, as a terminal does, where Spark and Hadoop are installed too."""
    conf = folder.parent / f"{folder.name}-hadoop"
    conf.mkdir()
    (conf / "core-site.xml").write_text(HADOOP)
    others = {"SPARK_HOME": "/opt/another-spark", "PYSPARK_PYTHON": "/opt/another-python", "HADOOP_CONF_DIR": str(conf)}
    own = {"PYTHONPATH": str(ROOT), "TMPDIR": str(folder), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment = {**os.environ, **own, **others}
    return subprocess.Popen(
        [sys.executable, EXAMPLES / f"{name}.py", *words], cwd=folder, env=environment, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, process_group=0,
    )  # fmt: skip


@pytest.mark.capability("sessions")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(path.stem, marks=() if path.stem == "sessions" else pytest.mark.slow)
        for path in sorted(EXAMPLES.glob("*.py"))
    ],
)
def test_an_example_rescales_and_finds_its_results_right(name, kafka, tmp_path):
    with started(name, "--kafka", kafka, folder=tmp_path) as process:
        said, errors = process.communicate(timeout=_DEADLINE_S)
    assert process.returncode == 0, said + errors[-3000:]
    assert re.search(r"workers: [34]", said)
    assert re.match(r"All \d+ \w+ are right\.", said.splitlines()[-1])
    assert not list(tmp_path.iterdir()), "its temporary folder is gone"
    assert "SPARK_HOME=/opt/another-spark is not used" in errors
    assert "PYSPARK_PYTHON=/opt/another-python is not used" in errors


def test_ctrl_c_ends_an_example_its_broker_and_its_session(tmp_path):
    odd = tmp_path / "José, данные #1 100%20 back\\slash"
    odd.mkdir()
    with started("sessions", folder=odd) as process:
        lines = iter(process.stdout.readline, "")
        assert any(_IN_THE_MIDST.search(line) for line in lines), process.stderr.read()[-3000:]
        children = psutil.Process(process.pid).children(recursive=True)
        assert len([child for child in children if child.name() == "java"]) == 2, "Spark and a broker of its own"
        os.killpg(process.pid, signal.SIGINT)
        said, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors[-3000:]
    assert said.splitlines()[-1] == "Stopped: the query has ended between two epochs."
    assert "Traceback" not in errors
    assert not psutil.wait_procs(children, timeout=20)[1]


def test_a_broker_that_does_not_answer_is_said_in_a_sentence(tmp_path):
    with started("sessions", "--kafka", "127.0.0.1:1", folder=tmp_path) as process:
        said, errors = process.communicate(timeout=_DEADLINE_S)
    assert process.returncode == 2, said + errors
    assert errors.splitlines()[-1].startswith("The broker at 127.0.0.1:1 does not answer within")


@pytest.mark.slow
def test_the_notebook_draws_its_figure(kafka, tmp_path, monkeypatch):
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("RESCALE_KAFKA", kafka)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    notebook = nbformat.read(EXAMPLES / "rescale.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "it is stored without what a run has drawn"
    NotebookClient(notebook, timeout=_DEADLINE_S, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert "records were counted once, across 2 rescales" in "".join(output.get("text", "") for output in outputs)
    assert any("image/png" in output.get("data", {}) for output in outputs)


def test_every_example_is_short_and_in_the_list():
    listed = set(re.findall(r"\]\(([\w.]+)\) \|", (EXAMPLES / "README.md").read_text()))
    there = {path.name for path in EXAMPLES.iterdir() if path.suffix in {".py", ".ipynb"}}
    assert listed == there
    assert max(len(path.read_text().splitlines()) for path in EXAMPLES.glob("*.py")) <= 110
