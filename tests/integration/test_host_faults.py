"""A query on two hosts, one of whose executors is killed in a migration, in processes of its own."""

import pytest
from processes import working_on
from rich.console import Console

from harness.suites.faults.run import fault_test
from harness.suites.faults.schedule import draw_host_schedule

pytestmark = pytest.mark.timeout(300)
SEED = 1


def test_an_executor_killed_in_a_migration_loses_and_doubles_nothing(tmp_path, capsys):
    schedule = draw_host_schedule(SEED, ["megaphone-batched"], only=["executor@during-pull"])
    with capsys.disabled():
        report, _ = fault_test(
            schedule, tmp_path, seed=SEED, durability="process", where=2, console=Console(quiet=True, width=200)
        )
    [fault], [answer] = report["faults"], report["campaigns"].values()
    assert (fault["verdict"], fault["restarts"], fault["phase"]) == ("survived", 0, "migrating"), fault
    assert (answer["verdict"], answer["lost"], answer["doubled"]) == ("valid", 0, 0), answer
    assert not working_on(tmp_path)
