"""Commands in a Kafka topic: several queries obey one from the same time on, and what is wrong is refused."""

import hashlib
import json
import pickle
import subprocess
import sys
import time
from pathlib import Path

import pytest
from controlled import findings
from controlled_process import Load, begins_of, bounds_of, commanded_of, done_of
from pipeline import Pipeline, await_true
from recount import __file__ as CODE  # noqa: N812

from harness.run.change import offer
from impls.controltopic.client import ControlClient
from impls.controltopic.topic import ControlTopic
from impls.driver.journal import read_journal

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[2]
DEADLINE_S = 60.0
NOBODYS = "a-topic-that-nobody-has-made"


@pytest.fixture
def queries(spark, kafka, topic_factory, tmp_path):
    """queries(topic, *names) starts queries of these names on one input and one control topic."""
    made: list[Pipeline] = []

    def make(topic: str, *names: str) -> list[Pipeline]:
        source = topic_factory(2)
        for name in names:
            topics, control = (source, topic_factory(4)), ControlTopic(kafka, topic, name, answer_topics=(NOBODYS,))
            made.append(Pipeline(spark, kafka, topics, tmp_path / name, "megaphone-all-at-once", control=control))
        for one in made:
            one.start()
        return made

    yield make
    for one in made:
        if one.handle is not None and not one.handle.await_end(0):
            one.stop()


def client_of(kafka, topic) -> ControlClient:
    """A client, as soon as a query has made the topics."""
    made = []

    def there() -> bool:
        from impls.errors import UsageError

        try:
            made.append(ControlClient(kafka, topic))
        except UsageError:
            return False
        return True

    await_true(there, "the control topic")
    return made[0]


def answered(client, number, outcome=""):
    """The answers that come, until there are so many of an outcome."""
    found = []
    for answer in client.answers(DEADLINE_S):
        found.append(answer)
        if sum(one["outcome"] == (outcome or one["outcome"]) for one in found) == number:
            return found
    pytest.fail(f"waited {DEADLINE_S} s for {number} answers, {found} came")


def ask(kafka, *words) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-P",
        "harness/cli/program.py",
        "--search-root",
        str(ROOT),
        "control",
        *words,
        "--bootstrap",
        kafka,
        "--topic",
        "control-bad",
    ]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.capability
def test_one_command_holds_for_two_queries_from_the_same_time(queries, kafka):
    runs = queries("control-two", "left", "right")
    client = client_of(kafka, "control-two")
    runs[0].send(400)
    runs[1].sent = 400
    for run in runs:
        run.await_applied()
    at_ms = time.time_ns() // 1_000_000 + 500
    commands = {
        "later": {"do": "rescale", "workers": 3, "from": {"time": at_ms + 4000}},
        "sooner": {"do": "rescale", "workers": 4, "from": {"time": at_ms}},
    }
    with client, Load(lambda: runs[0].send(20)):
        client.send(commands)
        told = answered(client, 4, "carried out")
        for run in runs:
            assert run.handle.await_migration(60)
    runs[1].sent = runs[0].sent
    assert {(a["id"], a["query"]) for a in told if a["outcome"] == "carried out"} == {
        (id_, query) for id_ in commands for query in ("left", "right")
    }
    for run in runs:
        run.await_applied()
        assert run.handle.status()["workers"] == 3
        assert run.handle.status()["control"]["carried_out"] == 2
        run.stop()
        assert [one["id"] for one in done_of(run.folder)] == ["sooner", "later"]
        bounds = bounds_of(kafka, run.topics[0], commands)
        assert findings(done_of(run.folder), begins_of(run.folder), bounds, commands, commanded_of(run.folder)) == []
        answer = run.check(2)
        if len({one["epoch"] for one in done_of(run.folder)}) == 2:
            assert (answer["verdict"], answer["reasons"]) == ("valid", []), answer
        else:  # the second one has replaced the first one before anything moved
            assert "No record crossed 1 of 2 migrations" in "".join(answer["reasons"]), answer


def test_what_cannot_be_done_is_answered_with_a_sentence_and_the_query_goes_on(queries, kafka):
    (run,) = queries("control-bad", "only")
    run.send(100)
    run.await_applied()
    commands = {
        "many": {"do": "rescale", "workers": 99},
        "verb": {"do": "fly"},
        "argument": {"do": "rescale"},
        "topic": {"do": "rescale", "workers": 3, "from": {"offsets": {"elsewhere": {"0": 1}}}},
        "from": {"do": "rescale", "workers": 3, "from": {"time": "noon"}},
        "other": {"do": "rescale", "workers": 3, "queries": ["another"]},
        "place": {"do": "rescale", "workers": 4, "from": {"offsets": {run.topics[0]: {"0": 60, "1": 55}}}},
        "asked": {"do": "status"},
        "lost": {"do": "status", "answer": NOBODYS},
    }
    with client_of(kafka, "control-bad") as client:
        client.send(commands)
        told = {a["id"]: a for a in answered(client, 8)}
        assert {id_: a["outcome"] for id_, a in told.items() if a["outcome"] != "waiting"} == {
            "many": "refused", "verb": "refused", "argument": "refused", "topic": "refused", "from": "refused",
            "asked": "carried out",
        }  # fmt: skip
        assert "too few for 99 workers" in told["many"]["error"]
        assert told["verb"]["error"].startswith("The request 'fly' is unknown")
        assert told["topic"]["error"] == "The query does not read the topic elsewhere."
        assert told["asked"]["answer"]["workers"] == 2
        run.send(100)
        (done,) = [a for a in answered(client, 1, "carried out") if a["id"] == "place"]
        assert done["answer"] == {"id": "control/place"}
        run.send(300)
        told = ask(kafka, "status", "--query", "only")
        assert (told.returncode, json.loads(told.stdout)["answer"]["control"]["refused"]) == (0, 5), told.stderr
        told = ask(kafka, "rescale", "--workers", "99", "--query", "only")
        assert (told.returncode, told.stderr.count("\n")) == (2, 1)
        assert told.stderr.startswith("The query only has refused it: ")
        told = ask(kafka, "stop", "--query", "another", "--wait", "0.5")
        assert (told.returncode, told.stderr.count("\n")) == (1, 1)
    assert run.handle.await_migration(60)
    run.await_applied()
    assert run.handle.status()["workers"] == 4
    log = run.folder / "checkpoint/rescale/control.log"
    await_true(lambda: {"sent": "lost"} in read_journal(log), "the answer that nobody can take to be given up")
    run.stop()
    bounds = bounds_of(kafka, run.topics[0], {"place": commands["place"]})
    assert findings(done_of(run.folder), begins_of(run.folder), bounds, ["place"], commanded_of(run.folder)) == []
    run.assert_valid(1)


class Trap:
    """Makes a file where it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.capability("insert")
@pytest.mark.parametrize("do", ["insert", "replace"])
def test_code_comes_from_the_checkpoint_alone(queries, kafka, tmp_path, do, capsys):
    (run,) = queries(f"control-code-{do}", "only")
    run.send(100)
    run.await_applied()
    trap, checkpoint = tmp_path / "sprung", run.folder / "checkpoint"
    raw = pickle.dumps(Trap(trap))
    assert offer(checkpoint=[str(checkpoint)], code=f"{CODE}:nothing") == 0
    offered = capsys.readouterr().out.strip()
    (checkpoint / "trap").write_bytes(raw)
    commands = {
        "code": {"do": do, "code": raw.hex()},
        "both": {"do": do, "code": raw.hex(), "offered": offered},
        "unknown": {"do": do, "offered": hashlib.sha256(raw).hexdigest()},
        "elsewhere": {"do": do, "offered": "../../trap"},
        "nothing": {"do": do},
        "good": {"do": "insert", "offered": offered},
    }
    with client_of(kafka, f"control-code-{do}") as client:
        client.send(commands)
        told = {a["id"]: a for a in answered(client, len(commands)) if a["outcome"] != "waiting"}
        run.send(100)
        done = run.handle.await_change(told.pop("good")["answer"]["id"], DEADLINE_S)
    assert done["state"] == "done", done
    for id_, answer in told.items():
        sentence = "A command brings no code" if id_ in {"code", "both"} else "No code '"
        assert (answer["outcome"], answer["error"][: len(sentence)]) == ("refused", sentence)
    assert not trap.exists()
    run.stop()
    run.assert_valid(0)
