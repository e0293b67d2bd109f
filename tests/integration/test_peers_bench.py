"""The other engines themselves, through `./inv bench`: fetched, compiled, rescaled there and back, judged."""

import json

import pytest
from invoked import result_of

from impls import catalog

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_200)]
OPTIONS = [
    "--workload=hash", "--keys=5000", "--rate=500", "--duration=30", "--lead-in=4", "--bins=16", "--workers=2:4",
    "--migration=there-and-back",
]  # fmt: skip


@pytest.mark.parametrize("name", catalog.peers())
def test_a_peer_is_rescaled_there_and_back_and_every_record_has_a_latency(tmp_path, name):
    option = "checkpoint_s=3" if name.startswith("flink") else "commit_ms=2000"
    folder = result_of("bench", tmp_path, "--mechanism", name, *OPTIONS, f"--option={option}", deadline_s=900)
    (entry,) = json.loads((folder / "result.json").read_text())["runs"]
    assert (entry["verdict"], entry["reasons"]) == ("valid", [])
    assert entry["mode"] == "real-time"
    assert [m["label"] for m in entry["migrations"]] == ["rescale 2 to 4 workers", "rescale 4 to 2 workers"]
    assert all(m["end_s"] is not None for m in entry["migrations"])
    counted = sum(entry["latency_ms"][tag]["count"] for tag in ("warmup", "steady", "migrating", "after"))
    assert counted == entry["generator"]["records"]
    partitions = [
        event["partitions"]
        for event in map(json.loads, (folder / entry["folder"] / "events.jsonl").read_text().splitlines())
        if event["kind"] == "query_start"
    ]
    assert partitions == [2, 4, 2]
    assert entry["memory_bytes"]["executor"] > 100 << 20


@pytest.mark.parametrize("victim", ["worker", "broker"])
@pytest.mark.parametrize("name", catalog.peers())
def test_a_peer_goes_on_when_a_process_is_killed_in_its_rescale(tmp_path, name, victim):
    option = "checkpoint_s=3" if name.startswith("flink") else "commit_ms=2000"
    given = ["--mechanism", name, *OPTIONS, f"--option={option}", f"--fault={victim}@migrating"]
    folder = result_of("bench", tmp_path, *given, deadline_s=1_100)
    plain, faulty = json.loads((folder / "result.json").read_text())["runs"]
    assert plain["mechanism"] == name
    assert faulty["mechanism"] == f"{name} with {victim}@migrating"
    assert (folder / faulty["folder"] / "fault.json.fired").exists()
    assert faulty["lost"] == 0
    if name.startswith("flink"):  # the others promise at least once
        assert (faulty["doubled"], faulty["verdict"]) == (0, "valid")
