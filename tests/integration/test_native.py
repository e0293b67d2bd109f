"""Spark's own restart through `./inv bench`: the same oracle, a latency for every record."""

import json

import pytest
from invoked import result_of

pytestmark = pytest.mark.timeout(400)
OPTIONS = [
    "--workload=hash", "--keys=2000", "--rate=300", "--arrivals=40", "--duration=6", "--bins=16",
    "--workers=1:2",
]  # fmt: skip


@pytest.mark.capability("native-repartition")
@pytest.mark.parametrize("name", ["native-repartition", "native-real-time"])
def test_an_offline_repartition_is_valid_and_every_record_has_a_latency(tmp_path, name):
    folder = result_of("bench", tmp_path, "--mechanism", name, *OPTIONS, deadline_s=360)
    entry = json.loads((folder / "result.json").read_text())["runs"][0]
    assert (entry["verdict"], entry["reasons"]) == ("valid", [])
    assert entry["mode"] == ("real-time" if name == "native-real-time" else "micro-batch")
    counted = sum(entry["latency_ms"][tag]["count"] for tag in ("warmup", "steady", "migrating", "after"))
    seconds = 11 + entry["generator"]["extended_s"]  # on a slow machine it goes on until steady state is back
    assert counted == entry["generator"]["records"] == 300 * seconds
    (migration,) = entry["migrations"]
    assert migration["peak_ms"] > 0
    partitions = [
        event["partitions"]
        for event in map(json.loads, (folder / entry["folder"] / "events.jsonl").read_text().splitlines())
        if event["kind"] == "query_start"
    ]
    assert partitions == [1, 2]
