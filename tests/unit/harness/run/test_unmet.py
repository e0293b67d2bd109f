"""What the load of an autoscaled run waits for behind its planned end."""

from harness.run.check import unscheduled

START_US = 1_000_000_000
LOAD = {"start_us": START_US, "due_by_second": [100 * second for second in range(1, 61)]}


def events(*ends, bins=32):
    out = []
    for number, at_s in enumerate(ends):
        out.append({"kind": "command", "id": str(number), "at_us": START_US, "moves": {"bins": bins}})
        out.append({"kind": "migration_end", "id": str(number), "at_us": START_US + int(at_s * 1e6)})
    return out


def at(seconds):
    return START_US + int(seconds * 1e6)


def test_a_migration_is_crossed_by_records_that_are_due_behind_its_end():
    assert unscheduled([], LOAD, 64, at(30)) == ""
    assert "migration '0'" in unscheduled(events(29.9), LOAD, 64, at(30))
    assert "migration '1'" in unscheduled(events(20, 29.9), LOAD, 64, at(30))
    assert unscheduled(events(20, 29.7), LOAD, 64, at(30)) == ""


def test_fewer_moved_bins_need_more_records():
    assert unscheduled(events(28, bins=1), LOAD, 64, at(30)) != ""
    assert unscheduled(events(23, bins=1), LOAD, 64, at(30)) == ""
    assert unscheduled(events(29.9, bins=0), LOAD, 64, at(30)) == ""
