"""Changes of a running query on real Spark and Kafka: live, by a restart, with faults; the oracle sees each record."""

import pytest
from processes import working_on
from rich.console import Console

from harness.experiment.parameters import MICRO_BATCH, REAL_TIME
from harness.setup.java import ensure_jars, use_java
from harness.suites.changes.cases import LIVE, RESTART, ChangeCase, Setting
from harness.suites.changes.run import FAULTS, campaign
from harness.suites.changes.suite import changes

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module", autouse=True)
def _ready():
    use_java()
    ensure_jars()


def setting(mode):
    return Setting(
        mode, keys=2_000, rate=300, workers=2, workers_goal=3, bins=16, lead_in_s=1.0, steady_s=3.0, after_s=2.0, seed=1
    )


@pytest.mark.capability("insert-filter-live-micro-batch")
@pytest.mark.parametrize(
    ("experiment", "how", "mode"),
    [
        ("insert-filter", LIVE, MICRO_BATCH),
        ("replace-function", RESTART, MICRO_BATCH),
        ("replace-function", LIVE, REAL_TIME),
        ("change-shape", "eager with a worker killed", REAL_TIME),
    ],
)
def test_every_record_is_under_one_code(tmp_path, experiment, how, mode):
    [entry] = changes([ChangeCase(experiment, how, setting(mode))], tmp_path, Console(quiet=True))
    assert (entry["verdict"], entry["reasons"], entry["outcome"]) == ("valid", [], "done")
    assert entry["oracle"]["crossed"] > 0
    assert entry["held_s"] > 0
    assert entry["peak_ms"] > 0
    assert not working_on(tmp_path)


def test_faults_in_the_midst_of_changes_lose_and_double_nothing(tmp_path):
    faults = [fault for fault in FAULTS if fault.name in {"worker@during-trial", "driver@before-switch"}]
    told = []
    entry = campaign(setting(MICRO_BATCH), faults, tmp_path / "faults", told.append)
    assert told == entry["faults"]
    assert (entry["verdict"], entry["reasons"]) == ("valid", [])
    assert [(line["fired"], line["outcome"]) for line in entry["faults"]] == [(True, "done")] * 2
    assert not working_on(tmp_path)
