"""Queries 4 and 6 on Spark's own state through `./inv bench`, across a rescale under a load."""

import json

import pytest
from invoked import result_of

pytestmark = pytest.mark.timeout(500)
OPTIONS = [
    "--workload=nexmark", "--mechanism=native-repartition", "--rate=300", "--duration=14", "--bins=16",
    "--arrivals=40", "--workers=1:2",
]  # fmt: skip


@pytest.mark.parametrize("query", ["q4", "q6"])
def test_a_rescale_of_sparks_own_state_keeps_what_is_open(tmp_path, query):
    folder = result_of("bench", tmp_path, f"--query={query}", *OPTIONS)
    (entry,) = json.loads((folder / "result.json").read_text())["runs"]
    oracle = json.loads((folder / entry["folder"] / "oracle.json").read_text())
    assert (entry["verdict"], entry["reasons"]) == ("valid", [])
    assert oracle["results"] > 10
    assert oracle["crossed"] > 0
    counted = sum(entry["latency_ms"][tag]["count"] for tag in ("warmup", "steady", "migrating", "after"))
    seconds = 19 + entry["generator"]["extended_s"]  # on a slow machine it goes on until steady state is back
    assert counted == oracle["measured"] == 300 * seconds * 49 // 50  # all but the persons
