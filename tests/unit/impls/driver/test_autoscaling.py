"""The thread that autoscales: what it decides when, what it logs, and how it ends."""

import threading
import time
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest
from timed import TimedRun, close_all

from impls.autoscale.intervals import Look
from impls.autoscale.loop import AutoscaleSettings
from impls.driver.autoscaling import Autoscaled, Autoscaling
from impls.driver.epochs import EpochRecord
from impls.driver.journal import Journal, read_journal
from impls.errors import StateError, UsageError
from impls.operators import HashCount
from impls.protocol.plan import EpochPlan, WrittenPlan
from impls.protocol.report import Report

PLACE = ("in", 0)


class Source:
    """A source of 8000 records/s, of which an epoch reads 40."""

    behind = 0

    def __init__(self):
        self.began, self.fails = time.monotonic(), False

    def now(self):
        return int((time.monotonic() - self.began) * 8000)

    def consumed(self, epoch):
        return {PLACE: 40 * epoch}

    def look(self, places):
        assert set(places) == {PLACE}
        if self.fails:
            raise StateError("The broker does not say how far it goes.")
        return Look(time.monotonic(), {PLACE: self.now()})


class Query:
    """Two workers of 1000 records/s; a rescale is a migration until `done` is set."""

    def __init__(self, folder, policy="ds2", **more):
        self.source, self.events, self.asked, self.migrating = Source(), [], [], False
        self.told = threading.Event()
        path = folder / "autoscale.log"
        usual = {"least": 1, "most": 8, "interval_s": 0.1, "cooldown_s": 0.0, "warmup": 0}
        settings = AutoscaleSettings(policy, **{**usual, **more})
        log = Journal(path)
        self.autoscaling = Autoscaling(
            settings, self.source, log, past=read_journal(path), migrating=lambda: self.migrating,
            rescale=self.rescale, on_event=self.on_event,
        )  # fmt: skip
        self.epoch, self.clock = 0, iter(lambda: time.time_ns() // 1000, None)

    def rescale(self, workers):
        self.asked.append(workers)
        self.migrating = True
        return f"command-{workers}"

    def on_event(self, kind, fields):
        self.events.append((kind, fields))
        self.told.set()

    def run_until(self, done):
        end = time.monotonic() + 20
        while not done():
            assert time.monotonic() < end, self.events
            plan = WrittenPlan(self.epoch, 1, 2, EpochPlan(np.array([0, 1], np.int32)), migrating=self.migrating)
            reports = [Report(worker, records=20, ms={"apply": 20.0}) for worker in range(2)]
            self.autoscaling.take(EpochRecord(plan, 0, next(self.clock), reports, {}, {}, 0, 0))
            self.epoch += 1
            time.sleep(0.01)


@pytest.fixture
def query(tmp_path):
    with ExitStack() as stack:

        def make(*arguments, **named):
            made = Query(tmp_path, *arguments, **named)
            stack.callback(made.autoscaling.stop)
            return made

        yield make


@pytest.mark.lengthy
def test_a_decision_is_told_logged_and_carried_out_and_none_is_made_while_a_migration_runs(query, tmp_path):
    run = query()
    run.run_until(lambda: run.asked)
    assert run.asked == [8]
    run.run_until(lambda: run.epoch > 200)
    assert run.asked == [8], "the migration is still under way"
    (kind, fields) = run.events[-1]
    assert (kind, fields["workers"], fields["wanted"], fields["command"]) == ("autoscale", 2, 8, "command-8")
    assert fields["numbers"]["true_rate"] == 1000
    assert run.autoscaling.status() == {"policy": "ds2", "min": 1, "max": 8, "last": fields}
    logged = read_journal(tmp_path / "autoscale.log")
    assert [{**entry, "command": "command-8"} if entry["wanted"] else entry for entry in logged] == [
        fields for _, fields in run.events
    ]
    run.migrating = False
    run.run_until(lambda: len(run.asked) == 2)


def test_a_rescale_is_logged_before_it_is_commanded(query, tmp_path):
    run = query()
    seen = []
    run.rescale, rescale = (
        lambda workers: seen.append(read_journal(tmp_path / "autoscale.log")) or rescale(workers),
        (run.rescale),
    )
    run.autoscaling._rescale = run.rescale
    run.run_until(lambda: seen)
    assert seen[0][-1]["wanted"] == 8


def test_a_new_start_goes_on_with_the_cool_down_of_the_log(query):
    first = query()
    first.run_until(lambda: first.asked)
    first.autoscaling.stop()
    second = query(cooldown_s=3600.0)
    second.run_until(lambda: len(second.events) >= 3)
    assert second.asked == []
    assert "cool-down" in second.events[-1][1]["reason"]


def test_a_broker_that_does_not_answer_is_told_and_asked_again(query):
    run = query()
    run.source.fails = True
    run.run_until(lambda: run.events)
    assert "broker" in run.events[0][1]["error"]
    run.source.fails = False
    run.run_until(lambda: run.asked)


@pytest.mark.parametrize("where", ["on_event", "look", "loop"])
def test_an_exception_of_whatever_it_calls_does_not_end_it(query, caplog, where):
    run, raised = query("none"), []

    def fail(*_):
        raised.append(1)
        raise ConnectionError("away for a moment")

    places = {"on_event": run.autoscaling, "look": run.source, "loop": run.autoscaling._loop}
    place, name = places[where], {"on_event": "_on_event", "loop": "decide"}.get(where, where)
    kept = getattr(place, name)
    setattr(place, name, fail)
    run.run_until(lambda: len(raised) >= 2)
    assert "ConnectionError: away for a moment" in caplog.text
    setattr(place, name, kept)
    run.events.clear()
    run.run_until(lambda: any("reason" in fields for _, fields in run.events))
    assert run.autoscaling._thread.is_alive()


def test_a_wall_clock_that_is_set_back_changes_no_interval(query):
    run = query("none")
    run.clock = iter(range(10**16, 0, -(10**9)))  # it goes back a thousand seconds an epoch
    run.run_until(lambda: len(run.events) >= 2)
    for _, fields in run.events:
        assert 0 < fields["numbers"]["seconds"] < 5
        assert fields["workers"] == 2


def test_an_epoch_of_which_the_source_knows_later_is_measured_later(query):
    run = query()
    run.source.behind, known = 1, []
    run.source.consumed = lambda epoch: known.append(epoch) or {PLACE: 40 * epoch}
    run.run_until(lambda: run.epoch == 5)
    assert known == [0, 1, 2, 3]


def test_the_end_of_the_query_ends_it(query):
    run = query()

    def refuse(_workers):
        raise UsageError("The query has ended.")

    run.autoscaling._rescale = refuse
    run.run_until(lambda: not run.autoscaling._thread.is_alive())


@pytest.mark.lengthy
def test_a_long_log_keeps_its_last_rescales(query, tmp_path, monkeypatch):
    monkeypatch.setattr("impls.driver.autoscaling._LOG_BYTES", 2000)
    monkeypatch.setattr("impls.driver.autoscaling._KEPT_DECISIONS", 2)
    run = query("none", least=3, cooldown_s=3600.0)
    run.run_until(lambda: len(run.events) == 1)
    run.migrating = False
    run.run_until(lambda: len(run.events) > 12)
    kept = read_journal(tmp_path / "autoscale.log")
    assert len(kept) < 10
    assert kept[0]["wanted"] == 3


class Scaled(Autoscaled):
    def rescale(self, workers):
        return f"command-{workers}"

    def moves(self, _workers):
        return True


@contextmanager
def six_at_most(workers):
    if workers > 6:
        raise UsageError("Six are the most.")
    yield


def test_a_policy_that_is_refused_or_turned_off_may_ask_for_no_workers(tmp_path):
    run = TimedRun(tmp_path, HashCount())
    run.driver.allowing = six_at_most
    scaled = Scaled(run.driver, run.checkpoint, Source, lambda *_: None)
    try:
        scaled.autoscale("ds2", max=6)
        with pytest.raises(UsageError, match="Six are the most"):
            scaled.autoscale("ds2", max=7)
        assert (run.driver.autoscaled_to, scaled.autoscale_status()["autoscale"]["max"]) == (6, 6), "it goes on"
        scaled.autoscale(None)
        assert (run.driver.autoscaled_to, scaled.autoscale_status()) == (0, {})
        without = Scaled(run.driver, run.checkpoint, None, lambda *_: None)
        with pytest.raises(UsageError, match="no such source"):
            without.autoscale("ds2", max=4)
        assert run.driver.autoscaled_to == 0
    finally:
        scaled.end_autoscaling()
        close_all()
