"""Spark's own restart through `./inv bench`: the same oracle, a latency for every record."""

import json

import pytest
from invoked import result_of

from harness.files import read_lines

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
    events = read_lines(folder / entry["folder"] / "events.jsonl")
    starts = [event for event in events if event["kind"] == "query_start"]
    assert [start["partitions"] for start in starts] == [1, 2]
    (stop, drained, repartitioned) = (
        next(event for event in events if event["kind"] == kind)
        for kind in ("query_stop", "epoch_finished", "repartitioned")
    )
    assert stop["at_us"] <= drained["at_us"] <= repartitioned["at_us"] <= starts[1]["at_us"]
    assert drained["id"] == migration["id"]
    assert 0 <= drained["seconds"] + repartitioned["seconds"] <= (starts[1]["at_us"] - stop["at_us"]) / 1e6
    if name == "native-repartition":  # the old number of workers ends what was cut off, and nothing that came since
        begun = [line["begin_us"] for line in read_lines(folder / entry["folder"] / "epochs.jsonl")]
        assert sum(stop["at_us"] < begin < starts[1]["at_us"] for begin in begun) <= 1
