"""The other engines without their programs: settings, what they are asked for, when a rescale is done, refusals."""

import http.server
import json
import re
import threading
from contextlib import contextmanager

import pytest

from harness.lab.engines.engine import ENGINES, JavaProcess, Rest, RestError, compiled
from harness.lab.engines.flink import JOB_MANAGER, TASK_MANAGER, config_text, jvm_options, requirements, running_with
from harness.lab.engines.streams import balanced, threads_of
from harness.lab.waiting import wait_for
from harness.setup.java import find_javac, read_sums
from impls import catalog
from impls.errors import StateError, UsageError
from impls.mechanisms.flink.baseline import Flink


def settings(given: Flink, tmp_path) -> dict[str, str]:
    text = config_text(given, tmp_path, rpc=1, rest=2, slots=5)
    return dict(line.split(": ", 1) for line in text.splitlines())


def megabytes(found: dict[str, str], *names: str) -> int:
    return sum(int(found[f"taskmanager.memory.{name}"].removesuffix("m")) for name in names)


@pytest.mark.parametrize("backend", ["rocksdb", "hashmap"])
def test_the_task_manager_has_the_memory_that_was_given(tmp_path, backend):
    given = catalog.baseline("flink-adaptive", backend=backend, memory_mb=3_000)
    found = settings(given, tmp_path)
    parts = ("task.heap.size", "framework.heap.size", "framework.off-heap.size", "network.max", "managed.size")
    assert megabytes(found, *parts) + 160 + 256 == 3_000  # metaspace and overhead
    assert (megabytes(found, "managed.size") > 0) == (backend == "rocksdb")
    heap = megabytes(found, "task.heap.size", "framework.heap.size")
    assert f"-Xmx{heap}m" in jvm_options(given, TASK_MANAGER)
    assert f"-Xmx{heap}m" not in jvm_options(given, JOB_MANAGER)


def test_the_options_are_in_the_settings(tmp_path):
    found = settings(catalog.baseline("flink-savepoint", checkpoint_s=3, compression="off"), tmp_path)
    assert found["jobmanager.scheduler"] == "default"
    assert found["execution.checkpointing.interval"] == "3s"
    assert found["execution.checkpointing.snapshot-compression"] == "false"
    adaptive = settings(catalog.baseline("flink-adaptive", cooldown_s=4), tmp_path)
    assert adaptive["jobmanager.scheduler"] == "adaptive"
    assert adaptive["jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling"] == "4s"


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("flink-adaptive", "backend", "disk"), ("flink-adaptive", "compression", "yes"),
        ("flink-savepoint", "checkpoint_s", 0), ("flink-adaptive", "cooldown_s", -1),
        ("flink-savepoint", "memory_mb", 100),
        ("kafka-streams-classic", "added", "hosts"), ("kafka-streams-streams", "guarantee", "exactly_once"),
        ("kafka-streams-classic", "commit_ms", 0), ("kafka-streams-classic", "memory_mb", 1),
    ],
)  # fmt: skip
def test_an_option_that_cannot_be_used_is_refused(name, option, value):
    with pytest.raises(UsageError, match=re.escape(str(value)) if isinstance(value, str) else r"\."):
        catalog.baseline(name, **{option: value})


def test_every_engine_of_the_catalog_has_its_jars():
    assert {catalog.baseline(name).engine for name in catalog.engines()} - {"kafka-floor"} == set(ENGINES)
    from harness.lab.engines import engine

    named = {name.partition("/")[0] for name in read_sums(engine._HERE / "jars.sha256")}
    assert named == set(ENGINES)


def vertex(name: str, parallelism: int, running: int) -> dict[str, object]:
    return {"id": name[0], "name": name, "parallelism": parallelism, "tasks": {"RUNNING": running}}


def test_a_job_runs_with_as_many_when_all_tasks_do():
    job = {"vertices": [vertex("Source: source", 2, 2), vertex("keyed count -> results: Writer", 4, 4)]}
    assert running_with(job, 4)
    assert not running_with(job, 2)
    assert not running_with({"vertices": [vertex("Source: source", 2, 1), vertex("keyed count", 4, 4)]}, 4)
    assert requirements(job["vertices"], 3)["S"]["parallelism"]["upperBound"] == 2
    assert requirements(job["vertices"], 3)["k"]["parallelism"]["upperBound"] == 3


def instance(*threads: list[str], state: str = "RUNNING") -> dict[str, object]:
    return {"state": state, "threads": [{"state": "RUNNING", "active": active} for active in threads]}


def test_tasks_that_count_are_to_be_spread_over_all_threads():
    two = instance(["0_0", "1_0", "1_1"], ["0_1", "1_2", "1_3"])
    assert balanced([two], [2], 4)
    assert not balanced([two], [3], 4)
    assert balanced([instance(["1_0", "1_1", "1_2"], ["1_3"])], [2], 4)
    assert not balanced([instance(["1_0", "1_1", "1_2", "1_3"], ["0_0"])], [2], 4)
    assert not balanced([instance(["1_0", "1_1"], ["1_2"])], [2], 4)
    assert not balanced([{**two, "state": "REBALANCING"}], [2], 4)
    assert balanced([instance(["1_0"], ["1_1"]), instance(["1_2"], ["1_3"])], threads_of("instance", 2, 4), 4)


@contextmanager
def answering(code: int, body: object):
    """Serves one answer to everything; yields (client, requests)."""
    seen: list[tuple[str, str, bytes]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            seen.append((self.command, self.path, data))
            self.send_response(code)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        do_GET = do_POST = do_PUT = answer  # noqa: N815 - names of the library

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Rest("127.0.0.1", server.server_port), seen
        server.shutdown()


def test_a_client_sends_json_and_files_and_reads_the_answer():
    with answering(200, {"a": 1}) as (rest, seen):
        assert rest.ask("PUT", "/jobs/1", {"b": 2}) == {"a": 1}
        assert rest.upload("/jars", "x.jar", b"PK") == {"a": 1}
    assert seen[0] == ("PUT", "/jobs/1", b'{"b": 2}')
    assert b'filename="x.jar"' in seen[1][2]
    assert b"\r\n\r\nPK\r\n" in seen[1][2]


def test_a_refusal_and_silence_are_told_in_a_sentence():
    with answering(409, {"errors": ["no\nsuch"]}) as (rest, _):
        with pytest.raises(RestError, match=r"^GET http://127.0.0.1:\d+/x was refused \(409\): .*no.*such") as told:
            rest.ask("GET", "/x")
        assert told.value.code == 409
    with pytest.raises(StateError, match="has no answer"):
        rest.ask("GET", "/x")


def test_a_process_that_ends_says_why(tmp_path):
    process = JavaProcess("An engine", [], tmp_path / "log" / "engine.log")
    with pytest.raises(StateError, match="An engine has not been started"):
        process.check()
    process.start("no.such.Program", [])
    wait_for(lambda: process._process is not None and process._process.poll() is not None, "the process to end", 30)
    with pytest.raises(StateError, match=r"An engine has ended \(exit code 1\): .*no\.such\.Program.*engine\.log"):
        process.check()
    process.stop()
    assert process.pid is None


@pytest.mark.lengthy
def test_a_class_is_compiled_once_and_one_that_is_wrong_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("RESCALE_CACHE", str(tmp_path / "cache"))
    source = tmp_path / "One.java"
    source.write_text("package rescale; public class One {}")
    jar = compiled(source, [])
    changed = jar.stat().st_mtime_ns
    assert compiled(source, []) == jar
    assert jar.stat().st_mtime_ns == changed
    source.write_text("package rescale; public class Two {}")
    with pytest.raises(UsageError, match=r"One\.java cannot be compiled with .*javac.*should be declared in a file"):
        compiled(source, [])
    assert [path.name for path in (tmp_path / "cache").glob("*.part")] == []


def test_java_without_a_compiler_is_told_in_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr("harness.setup.java.java_home", lambda _java: tmp_path)
    monkeypatch.setattr("harness.setup.java.shutil.which", lambda _name: None)
    monkeypatch.setattr("harness.setup.java.find_java", lambda: tmp_path / "java")
    with pytest.raises(UsageError, match=r"comes without a compiler.*install a JDK"):
        find_javac()
