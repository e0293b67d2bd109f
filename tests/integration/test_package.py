"""The package in an environment that has it, what it names as dependencies, and nothing else; nothing is fetched."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import rescale_bench
from harness.files import ROOT
from harness.setup.dist import build
from harness.setup.pack import closure, packages_folder

pytestmark = pytest.mark.lengthy
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PACKAGES = ("generators", "harness", "impls", "plots", "rescale_bench")
_NAME = re.compile(r"[\w.-]+")
_IMPORT_ALL = """
import importlib, pkgutil, sys
import impls
for module in pkgutil.walk_packages(impls.__path__, "impls."):
    importlib.import_module(module.name)
print(len([name for name in sys.modules if name.startswith("impls.")]), impls.__file__)
print(*sorted({name.split(".")[0] for name in sys.modules}))
"""
_WRONG = """
import impls
def to_many(query: impls.driver.handle.StreamHandle) -> None: ...
from impls.driver.handle import StreamHandle
def rescale(query: StreamHandle) -> str:
    return query.rescale(workers="four")
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The paths of (sdist, wheel)."""
    return build(tmp_path_factory.mktemp("dist"))


def environment(folder: Path, wheel: Path, *extras: str) -> Path:
    """Makes an environment with the wheel, and what it and its extras require as it is installed here; returns python.

    pip then finds every requirement fulfilled, or fails, since it has no index.
    """
    venv.create(folder, with_pip=True)
    required = PROJECT["dependencies"] + [text for extra in extras for text in PROJECT["optional-dependencies"][extra]]
    for distribution in closure(_NAME.match(text)[0] for text in required):
        for file in distribution.files:
            if file.parts[0] != "..":
                source, target = Path(distribution.locate_file(file)), folder / packages_folder() / file
                if source.exists():
                    target.parent.mkdir(parents=True, exist_ok=True)
                    linked(source, target)
    what = f"rescale-bench[{','.join(extras)}] @ {wheel.as_uri()}" if extras else str(wheel)
    run(folder / "bin" / "python", "-m", "pip", "install", "--no-index", "--quiet", what, cwd=folder)
    return folder / "bin" / "python"


def linked(source: Path, target: Path) -> None:
    """Makes a file another one's twin, in no time where both are on one disk."""
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def run(*command: str | Path, cwd: Path, code: int = 0, deadline_s: float = 240, **variables: str):
    """Runs a command with none of this environment's variables about Python, in another folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env={**kept, **variables}, capture_output=True, text=True,
        timeout=deadline_s, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout[-3000:] + done.stderr[-3000:]
    return done


@pytest.fixture(scope="module")
def python(built, tmp_path_factory):
    """The Python of an environment without extras."""
    return environment(tmp_path_factory.mktemp("core") / "venv", built[1])


def tracked(*places: str) -> set[str]:
    command = ["git", "ls-files", "-co", "--exclude-standard", *places]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return {name for name in told.stdout.splitlines() if (ROOT / name).exists()}


def test_the_wheel_has_every_file_of_the_packages_and_the_licence(built):
    with zipfile.ZipFile(built[1]) as wheel:
        names = set(wheel.namelist())
    assert tracked(*PACKAGES) <= names
    others = {name for name in names if name.split("/")[0] not in PACKAGES}
    assert {name.split("/")[0].partition("-")[0] for name in others} == {"rescale_bench"}
    assert any(name.endswith("licenses/LICENSE") for name in others)
    assert {f"{package}/py.typed" for package in PACKAGES} <= names


def test_the_source_distribution_is_the_repository_without_its_results(built):
    with tarfile.open(built[0]) as source:
        names = {name.partition("/")[2] for name in source.getnames()}
    assert {name for name in tracked() if not name.startswith((".ci/", ".github/"))} <= names


def test_impls_imports_nothing_that_the_package_does_not_bring(python, tmp_path):
    counted, imported = run(python, "-c", _IMPORT_ALL, cwd=tmp_path).stdout.splitlines()
    number, file = counted.split()
    assert int(number) > 150
    needed = {_NAME.match(text)[0].replace("-", "_") for text in PROJECT["dependencies"]}
    assert needed - {"protobuf"} <= set(imported.split()), "it brings what it imports; Spark's workers import protobuf"
    assert not Path(file).is_relative_to(ROOT)
    left = run(python, "-c", "import duckdb", cwd=tmp_path, code=1)
    assert "No module named 'duckdb'" in left.stderr, "the environment has nothing of the extras"


def test_the_command_without_extras(python, tmp_path):
    command = python.parent / "rescale-bench"
    module = run(python, "-m", "rescale_bench", "version", cwd=tmp_path)
    assert run(command, "version", cwd=tmp_path).stdout == module.stdout == rescale_bench.__version__ + "\n"
    findings = {one["item"]: one for one in json.loads(run(command, "doctor", "--json", cwd=tmp_path).stdout)}
    assert findings["pyspark"]["ok"]
    assert findings["LMDB"]["ok"]
    assert findings["extra bench"]["verdict"] == "optional"
    assert "rescale-bench[bench]" in findings["extra bench"]["remedy"]
    jars = [Path(path) for path in run(command, "jars", cwd=tmp_path).stdout.strip().split(",")]
    assert any(path.name.startswith("spark-sql-kafka") and path.is_file() for path in jars)
    refused = run(command, "bench", "--quick", cwd=tmp_path, code=2)
    assert refused.stderr == "The other commands need invoke: pip install 'rescale-bench[bench]'.\n"
    assert refused.stderr.strip() in run(command, cwd=tmp_path).stdout


def test_the_doctor_says_that_java_is_missing(python, tmp_path):
    said = run(python, "-m", "rescale_bench", "doctor", cwd=tmp_path, code=1, PATH=str(tmp_path), JAVA_HOME="").stdout
    assert "missing   Java" in said
    assert "-> Java 17 or newer was not found: install it" in said


def test_type_checkers_see_its_types(python, tmp_path):
    (tmp_path / "own.py").write_text(_WRONG)
    checked = run(
        sys.executable, "-m", "mypy", "--python-executable", python, "--strict", "--follow-imports", "silent",
        "--ignore-missing-imports", "own.py", cwd=tmp_path, code=1,
    ).stdout  # fmt: skip
    assert 'Argument "workers" to "rescale" of "StreamHandle" has incompatible type "str"; expected "int"' in checked


_SEND = """
import json, time
from confluent_kafka import Consumer, Producer, TopicPartition
producer = Producer({"bootstrap.servers": KAFKA})
consumer = Consumer({"bootstrap.servers": KAFKA, "group.id": "readme", "enable.auto.commit": False})
consumer.assign([TopicPartition(AVERAGES, at, 0) for at in range(4)])
averages = []
def send_and_wait(amount, number):
    for user in range(20):
        producer.produce(PAYMENTS, json.dumps({"user": f"u{user}", "amount": amount}))
    producer.flush(10)
    end = time.monotonic() + 120
    while len(averages) < number:
        assert time.monotonic() < end, f"{len(averages)} of {number} averages came in 120 s"
        averages.extend(json.loads(m.value())["average"] for m in consumer.consume(100, timeout=0.5) if not m.error())
"""


@pytest.mark.capability
def test_the_example_of_the_readme_runs_from_an_empty_folder(python, kafka, topic_factory, tmp_path):
    payments, averages = topic_factory(2), topic_factory(4)  # a page of docs has used the names of the example
    text = (ROOT / "README.md").read_text()
    code = re.search(r"## As a library\n.*?```python\n(.*?)```", text, re.DOTALL)[1]
    begin, rescale, rest = (
        code.replace("localhost:9092", kafka)
        .replace('"payments"', repr(payments))
        .replace('"averages"', repr(averages))
        .replace("/var/lib", str(tmp_path / "lib"))
        .partition("query.rescale(workers=4)")
    )
    middle, stop, _ = rest.partition("query.stop()")
    assert begin, rescale
    assert stop
    (tmp_path / "lib").mkdir()
    given = f"KAFKA, PAYMENTS, AVERAGES = {(kafka, payments, averages)!r}\n"
    program = [given, begin, _SEND, "send_and_wait(10.0, 20)\n", rescale, middle,
               "send_and_wait(20.0, 40)\n", "assert query.await_migration(60)\n", "print(query.status()['workers'])\n",
               stop, "\nprint(sorted(set(averages[:20])), sorted(set(averages[20:])))\n"]  # fmt: skip
    (tmp_path / "averages.py").write_text("".join(program))
    said = run(python, "averages.py", cwd=tmp_path, SPARK_LOCAL_IP="127.0.0.1").stdout
    assert said.splitlines()[-2:] == ["4", "[10.0] [15.0]"]


@pytest.mark.slow
def test_the_benchmark_runs_from_an_empty_folder(built, tmp_path):
    python = environment(tmp_path / "venv", built[1], "bench")
    (tmp_path / "empty").mkdir()
    options = ["--quick", "--mechanism", "none", "--keys", "20k", "--rate", "1k", "--duration", "4"]
    run(python.parent / "rescale-bench", "bench", *options, cwd=tmp_path / "empty")
    [result] = (tmp_path / "empty" / "results").glob("*/result.json")
    [one] = json.loads(result.read_text())["runs"]
    assert one["verdict"] == "valid"
    assert "megaphone-batched" in run(python.parent / "rescale-bench", "mechanisms", cwd=tmp_path / "empty").stdout


_WITH_PACKAGES = """
from pyspark.sql import SparkSession
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": KAFKA})
producer.produce("packages", "a record")
producer.flush(10)
builder = SparkSession.builder.master("local[1]").config("spark.jars.ivy", IVY).config("spark.jars.packages", PACKAGES)
rows = builder.getOrCreate().read.format("kafka").option("kafka.bootstrap.servers", KAFKA)
print(rows.option("subscribe", "packages").load().count())
"""


@pytest.mark.slow
def test_spark_fetches_the_connector_that_the_readme_names(python, kafka, tmp_path):
    """Needs the network."""
    from harness.lab.topics import create_topics

    create_topics(kafka, {"packages": 1})
    packages = re.search(r"spark\.jars\.packages=(\S+)`", (ROOT / "README.md").read_text())[1]
    names = f"KAFKA, IVY, PACKAGES = {kafka!r}, {str(tmp_path / 'ivy')!r}, {packages!r}\n"
    assert run(python, "-c", names + _WITH_PACKAGES, cwd=tmp_path).stdout.splitlines()[-1] == "1"


@pytest.mark.slow
def test_a_clean_clone_installs_with_pip_from_the_index(tmp_path):
    """Needs the network, or an index that PIP_INDEX_URL names."""
    subprocess.run(["git", "clone", "--quiet", ROOT, tmp_path / "clone"], check=True)
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", ".", cwd=tmp_path / "clone", deadline_s=600)
    run(python, "-c", "import impls, impls.api", cwd=tmp_path)
    shutil.rmtree(tmp_path / "venv")
