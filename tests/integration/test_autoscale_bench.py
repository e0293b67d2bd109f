"""The autoscaling suite on a small load: measured, judged, scored, and gone on with."""

import json

import pytest
from invoked import result_of

pytestmark = [pytest.mark.timeout(600), pytest.mark.lengthy]
OPTIONS = [
    "--load=step", "--policy=ds2", "--mechanism=megaphone-all-at-once", "--duration=18", "--max=4", "--cost-us=10000",
]  # fmt: skip


def test_a_step_is_followed_by_a_policy_and_judged_beside_fixed_numbers_of_workers(tmp_path):
    folder = result_of("autoscale", tmp_path, *OPTIONS, deadline_s=580)
    result = json.loads((folder / "autoscale.json").read_text())
    assert [(row["policy"], row["mechanism"], row["verdict"]) for row in result["rows"]] == [
        ("ds2", "megaphone-all-at-once", "valid"), ("right", "none", "valid"), ("most", "none", "valid"),
    ]  # fmt: skip
    scaled, right, most = (row["score"] for row in result["rows"])
    assert scaled["rescales"] >= 1
    assert right["rescales"] == most["rescales"] == 0
    assert scaled["worker_s"] < right["worker_s"] <= most["worker_s"]
    assert all(score["above_s"] >= 0 for score in (scaled, right, most))  # which is more, a busy machine decides
    assert max(workers for _, workers in result["rows"][0]["workers"]) > 1
    assert (folder / "figures" / "autoscale-workers.svg").stat().st_size
    (bench,) = folder.glob("*-autoscale-step-ds2")
    assert "Decisions of the autoscaler" in (bench / "report.html").read_text()
