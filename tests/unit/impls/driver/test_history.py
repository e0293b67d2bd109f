"""The log of migrations: who asked, what moved when, how each ended, across deaths of the driver and damage."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from telling import BEGIN_US, epoch_record

from harness.run.history import run_history
from impls.driver import history
from impls.driver.history import MigrationLog, caused_by, migrations_in
from impls.driver.journal import Journal
from impls.driver.migrations import migrations_of, under_way
from impls.errors import UsageError
from impls.placement.movement import Movement
from impls.protocol.events import Command, MigrationBegun, MigrationDone
from impls.protocol.report import MovesReport, Report

ONE, TWO = np.zeros(8, np.int32), np.arange(8, dtype=np.int32) % 2


@pytest.fixture
def own(tmp_path):
    own = tmp_path / "chain" / "totals" / "rescale"
    own.mkdir(parents=True)
    (own / "query.json").write_text("{}")
    return own


def command(id_, goal=TWO, label="rescale to 2 workers"):
    return Command(id_, "rescale", goal, label, 1)


def epoch(number, *events, moved=2, highest=20.0):
    """An epoch that ends `number` seconds later and takes half a second."""
    record = epoch_record(number, [1.0, highest])
    end = BEGIN_US + number * 1_000_000
    reports = [replace(record.reports[0], moves=MovesReport(list(range(moved)), bytes=512 * moved)), Report(1)]
    return replace(record, events=events, begin_us=end - 500_000, end_us=end, reports=reports)


def begun(id_, number, bins=4):
    return MigrationBegun(id_, "rescale to 2 workers", number, bins)


def test_a_rescale_has_cause_phases_bytes_and_latency(own):
    with MigrationLog(own) as log:
        log.take(epoch(1))
        with caused_by("policy", "ds2: too busy"):
            log.command(command("a"), ONE, Movement(4, 4096, 4, 4096), 7.5)
        assert log.records()[0].outcome == "waiting"
        log.take(epoch(2, begun("a", 2), highest=90.0))
        assert (log.records()[0].outcome, log.records()[0].seconds) == ("under way", None)
        log.take(epoch(3))
        log.take(epoch(4, MigrationDone("a", 4), moved=0))
        log.take(epoch(5, highest=500.0))
        (found,) = log.records()
    assert (found.cause, found.why, found.label, found.outcome) == (
        "policy", "ds2: too busy", "rescale to 2 workers", "done",
    )  # fmt: skip
    assert (found.workers_before, found.workers_after, found.planned_bins, found.planned_bytes) == (1, 2, 4, 4096)
    assert (found.epochs, found.moved_bins, found.moved_bytes, found.restored_bins) == (3, 4, 2048, 0)
    assert (found.moving_s, found.draining_s, found.seconds) == (1.5, 1.0, 2.5)
    assert found.before_p99_ms == 7.5
    assert found.highest_ms == pytest.approx(90, rel=0.01)
    assert migrations_in(own.parent) == [found]


def test_a_newer_command_replaces_a_migration_and_one_without_bins_ends_at_once(own):
    with MigrationLog(own) as log:
        log.take(epoch(1, begun("a", 1)))
        log.take(epoch(2, MigrationDone("a", 2, superseded=True), begun("b", 2)))
        log.take(epoch(3, MigrationDone("b", 3), begun("c", 3, 0), MigrationDone("c", 3), moved=0))
        log.take(epoch(4))
        a, b, c = log.records()
    assert [one.outcome for one in (a, b, c)] == ["replaced", "done", "done"]
    assert [one.epochs for one in (a, b, c)] == [1, 2, 1]
    assert (a.label, a.cause, a.asked_us, a.waiting_s) == ("rescale to 2 workers", "command", None, None)
    assert (a.end_us, a.moved_bins, b.moved_bins, c.moved_bins) == (b.begin_us, 2, 2, 0)


def test_a_lost_worker_is_told_with_why(own):
    record = epoch(7)
    rebuilt = Report(0, recovered="its state is damaged", moves=MovesReport(restored=3))
    robbed = Report(1, moves=MovesReport(lost=[[2, "its host is gone"]], restored=1))
    with MigrationLog(own) as log:
        log.take(replace(record, reports=[rebuilt, robbed]))
        one, other = log.records()
    assert (one.cause, one.label, one.why, one.restored_bins) == (
        "loss", "worker 0 was rebuilt", "its state is damaged", 3,
    )  # fmt: skip
    assert (other.label, other.why) == ("worker 2 gave no bins to worker 1", "its host is gone")
    assert one.seconds == 0.5


def test_losses_of_one_worker_in_one_epoch_are_all_there(own):
    reports = [
        Report(2, recovered="its disk is gone"),
        *(Report(n, moves=MovesReport(lost=[[2, "why"]])) for n in (0, 1)),
    ]
    with MigrationLog(own) as log:
        log.take(replace(epoch(7), reports=reports))
        log.take(replace(epoch(7), reports=reports))  # the driver died, and runs the epoch again
        labels = [one.label for one in log.records()]
    assert labels == [
        "worker 2 was rebuilt", "worker 2 gave no bins to worker 0", "worker 2 gave no bins to worker 1",
    ]  # fmt: skip


def test_a_log_that_cannot_be_opened_again_stops_nobody(own, monkeypatch, caplog):
    def fails(_self, _entries, *, base):
        raise OSError("too many open files")

    monkeypatch.setattr(history, "_LOG_BYTES", 1)
    monkeypatch.setattr(Journal, "rewrite", fails)
    with MigrationLog(own) as log:
        log.take(epoch(1, begun("a", 1)))
        log.take(epoch(2, MigrationDone("a", 2)))
    assert "Migrations are no longer logged: too many open files" in caplog.text


@given(dies=st.sets(st.integers(0, 5)), again=st.sets(st.integers(0, 5)))
def test_a_driver_that_dies_anywhere_changes_nothing_of_what_was(tmp_path_factory, dies, again):
    own = tmp_path_factory.mktemp("history") / "rescale"
    own.mkdir()
    happens = [epoch(1, begun("a", 1)), epoch(2), epoch(3, MigrationDone("a", 3, superseded=True), begun("b", 3)),
               epoch(4), epoch(5, MigrationDone("b", 5)), epoch(6)]  # fmt: skip
    whole = MigrationLog(own.parent)
    log = MigrationLog(own)
    for place, record in enumerate(happens):
        whole.take(record)
        log.take(record)
        if place in dies:
            log.close()
            log = MigrationLog(own)
        if place in again:  # the driver died behind its observation, and runs the epoch again
            log.take(record)
    assert log.records() == whole.records()
    log.close()
    whole.close()


def test_the_log_is_shortened_and_keeps_the_last_and_those_under_way(own, monkeypatch):
    monkeypatch.setattr(history, "_LOG_BYTES", 2000)
    monkeypatch.setattr(history, "_KEPT", 3)
    with MigrationLog(own) as log:
        for n in range(1, 40):
            log.take(epoch(n, begun(f"m{n}", n), MigrationDone(f"m{n}", n)))
        log.take(epoch(40, begun("last", 40)))
        for n in range(41, 60):
            log.take(epoch(n))
        kept = log.records()
        assert migrations_in(own.parent) == kept
        assert under_way(log._lines) == "last"
    assert (kept[-1].id, kept[-1].epochs) == ("last", 20)
    assert 2 < len(kept) < 20
    assert kept[-2].moved_bytes == 1024


def test_damage_begins_the_log_anew_and_a_full_disk_stops_nobody(own, monkeypatch, caplog):
    with MigrationLog(own) as log:
        log.take(epoch(1, begun("a", 1), MigrationDone("a", 1)))
    raw = (own / "history.log").read_bytes()
    (own / "history.log").write_bytes(raw.replace(b"rescale", b"RESCALE"))
    with pytest.raises(UsageError, match="damaged in line"):
        migrations_in(own.parent)
    with MigrationLog(own) as log:
        assert log.records() == []
        assert (own / "history.damaged").exists()

        def full(_self, _line):
            raise OSError("no space")

        monkeypatch.setattr(Journal, "_write", full)
        log.take(epoch(2, begun("b", 2)))
        assert [one.id for one in log.records()] == ["b"]
    assert "begins anew" in caplog.text
    assert "is lost" in caplog.text


def test_lines_of_a_command_without_its_epochs_are_a_migration_that_waits():
    lines = [{"kind": "command", "id": "a", "cause": "command", "why": "", "label": "l", "at_us": 5,
              "workers": [1, 2], "bins": 3, "bytes": 4, "p99_ms": None}]  # fmt: skip
    (found,) = migrations_of(lines)
    assert (found.outcome, found.asked_us, found.begin_us, found.highest_ms) == ("waiting", 5, None, None)


def test_the_command_prints_a_table_and_lines(own, capsys):
    assert run_history(str(own.parent), as_json=False, limit=20) == 0
    assert capsys.readouterr().out == "0 migrations and losses of workers\n"
    with MigrationLog(own) as log:
        log.command(command("a"), ONE, Movement(4, 4096, 4, 4096), None)
        log.take(epoch(2, begun("a", 2), MigrationDone("a", 2)))
        log.take(epoch(3, begun("b", 3)))
    assert run_history(str(own.parent), as_json=False, limit=1) == 0
    assert "2 migrations and losses of workers; the last 1 are shown" in capsys.readouterr().out
    assert run_history(str(own.parent), as_json=True, limit=1) == 0
    one, other = map(json.loads, capsys.readouterr().out.splitlines())
    assert (one["workers_before"], one["workers_after"], other["outcome"]) == (1, 2, "under way")
    assert run_history(str(own / "nothing"), as_json=False, limit=1) == 2
    assert "There is no checkpoint of a query" in capsys.readouterr().err
    assert run_history(str(own.parents[1]), as_json=False, limit=1) == 2
    assert "is the checkpoint of a chain: name that of a stage, totals in it" in capsys.readouterr().err
