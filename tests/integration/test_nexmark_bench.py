"""A NEXMark query through `./inv bench`, live and on Spark's own state, each against the same oracle."""

import json

import pytest
from invoked import result_of

pytestmark = pytest.mark.timeout(500)
OPTIONS = [
    "--workload=nexmark", "--query=q8", "--mechanism=megaphone-batched,native-repartition", "--rate=1000",
    "--arrivals=40", "--duration=12", "--bins=16", "--workers=1:2", "--profile=large-state:auctions=2000",
]  # fmt: skip


def test_live_and_native_answer_across_a_rescale_and_each_event_has_a_latency(tmp_path):
    folder = result_of("bench", tmp_path, *OPTIONS)
    runs = json.loads((folder / "result.json").read_text())["runs"]
    assert [(entry["verdict"], entry["reasons"]) for entry in runs] == [("valid", []), ("valid", [])]
    for entry in runs:
        oracle = json.loads((folder / entry["folder"] / "oracle.json").read_text())
        counted = sum(entry["latency_ms"][tag]["count"] for tag in ("warmup", "steady", "migrating", "after"))
        sent = 1_000 * (17 + entry["generator"]["extended_s"])  # it goes on until steady state is back
        assert counted == oracle["measured"] == sent * 4 // 50  # persons and auctions, of every 50 events
        assert oracle["records"] > sent + 2_000  # those from before the start are checked too
        assert oracle["crossed"] > 0
        assert entry["migrations"][0]["peak_ms"] > 0
