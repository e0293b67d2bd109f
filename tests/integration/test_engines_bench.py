"""The other engines themselves, through `./inv bench`: fetched, compiled, rescaled there and back, judged."""

import json
from types import SimpleNamespace

import pytest
from invoked import result_of

from impls import catalog

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_200)]
VICTIMS = ("worker", "broker")
LEAN = (
    "-XX:TieredStopAtLevel=1"  # of the engines' JVMs, which are not measured here: half their processor time compiles
)
OPTIONS = [
    "--workload=hash", "--keys=5000", "--rate=500", "--lead-in=4", "--duration=16", "--bins=16", "--workers=2:4",
    "--arrivals=40", "--migration=there-and-back",
    f"--fault={','.join(f'{victim}@migrating' for victim in VICTIMS)}",
]  # fmt: skip


@pytest.fixture(scope="module", params=catalog.engines())
def bench(request, tmp_path_factory):
    """A bench of an engine: its name, the folder of the result, and the runs, the undisturbed one first."""
    name = request.param
    own = "checkpoint_s=3,cooldown_s=3" if name.startswith("flink") else "commit_ms=2000"
    given = ["--mechanism", name, *OPTIONS, *([] if name == "kafka-floor" else [f"--option={own}"])]
    how = {"deadline_s": 1_100, "may_be_invalid": True, "JDK_JAVA_OPTIONS": LEAN}
    folder = result_of("bench", tmp_path_factory.mktemp(name), *given, **how)
    return SimpleNamespace(name=name, folder=folder, runs=json.loads((folder / "result.json").read_text())["runs"])


@pytest.mark.parametrize(("query", "name"), [("q5", "flink-adaptive"), ("q8", "kafka-streams-classic")])
def test_a_peer_answers_a_query_and_every_result_has_a_latency(query, name, tmp_path):
    own = "checkpoint_s=3,cooldown_s=3" if name.startswith("flink") else "commit_ms=2000"
    given = ["--workload=nexmark", "--query", query, "--mechanism", name, "--rate=1000", "--lead-in=4", "--duration=20",
             "--bins=16", "--workers=2:4", "--migration=there-and-back", f"--option={own}"]  # fmt: skip
    folder = result_of("bench", tmp_path, *given, deadline_s=600, JDK_JAVA_OPTIONS=LEAN)
    (entry,) = json.loads((folder / "result.json").read_text())["runs"]
    assert (entry["verdict"], entry["reasons"]) == ("valid", [])
    assert entry["latency_ms"]["steady"]["count"] > 0
    assert all(m["end_s"] is not None for m in entry["migrations"])


def test_a_peer_is_rescaled_there_and_back_and_every_record_has_a_latency(bench):
    entry = bench.runs[0]
    assert (entry["mechanism"], entry["verdict"], entry["reasons"]) == (bench.name, "valid", [])
    assert entry["mode"] == "real-time"
    assert [m["label"] for m in entry["migrations"]] == ["rescale 2 to 4 workers", "rescale 4 to 2 workers"]
    assert all(m["end_s"] is not None for m in entry["migrations"])
    counted = sum(entry["latency_ms"][tag]["count"] for tag in ("warmup", "steady", "migrating", "after"))
    assert counted == entry["generator"]["records"]
    partitions = [
        event["partitions"]
        for event in map(json.loads, (bench.folder / entry["folder"] / "events.jsonl").read_text().splitlines())
        if event["kind"] == "query_start"
    ]
    assert partitions == [2, 4, 2]
    assert entry["memory_bytes"]["executor"] > (10 if bench.name == "kafka-floor" else 100) << 20


@pytest.mark.parametrize("number", range(len(VICTIMS)), ids=VICTIMS)
def test_a_peer_goes_on_when_a_process_is_killed_in_its_rescale(bench, number):
    entry = bench.runs[1 + number]
    assert entry["mechanism"] == f"{bench.name} with {VICTIMS[number]}@migrating"
    assert (bench.folder / entry["folder"] / "fault.json.fired").exists()
    assert entry["lost"] == 0
    assert entry["migrations"][0]["end_s"] is not None
    if bench.name.startswith("flink"):  # the others promise at least once
        assert (entry["doubled"], entry["verdict"]) == (0, "valid")
