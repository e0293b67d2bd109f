"""The driver without Spark: what it makes durable when, how a stop is carried out, and which epochs it refuses."""

import json
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest

from impls import catalog, faults
from impls.driver import checkpoint as checkpoints
from impls.driver.checkpoint import Checkpoint
from impls.driver.driver import Driver
from impls.driver.epochs import QueryEnded, StopNeeded
from impls.driver.preparing import Preparation
from impls.errors import StateError, UsageError
from impls.protocol.controller import Controller
from impls.protocol.order import Answers
from impls.protocol.report import MovesReport, Report
from impls.worker.cells import CELL

START = np.array([0, 0, 1, 1], np.int32)
AWAY = np.array([3, 0, 1, 1], np.int32)
BACK = np.array([0, 2, 1, 1], np.int32)


class Died(Exception):  # noqa: N818 - no error of the driver
    """Stands for the death of the driver."""


class PullEverything:
    """An executor whose workers pull all they are asked to."""

    def run(self, order, _batch):
        rows = []
        for worker in range(order.written.workers):
            pulled = [pull.bin for pull in order.written.plan.pulls if pull.target == worker]
            rows.append((Report(worker, moves=MovesReport(pulled), ms={"pull": 1.23456}), np.empty(0, CELL)))
        return Answers.of(rows, build_ms=0.0, job_ms=0.0)


class Query:
    """One query over any number of drivers; `epoch` is what Spark would run next."""

    def __init__(self, folder, mechanism="megaphone-fluid"):
        self.folder, self.mechanism, self.epoch, self.events = folder, mechanism, 0, []
        self.opened = None
        self.start()

    def start(self):
        if self.opened is not None:
            self.opened.close()
        self.opened = Checkpoint(self.folder, {})
        controller = Controller(START, catalog.make(self.mechanism))
        self.driver = Driver(
            controller, self.opened, PullEverything(), files=None,
            on_epoch=lambda record: self.events.extend(record.events),
        )  # fmt: skip

    def run(self, epochs=1):
        for _ in range(epochs):
            self.driver.run_epoch(None, self.epoch)
            self.epoch += 1

    def plans(self):
        return self.opened.read("plan")


@pytest.fixture
def query(tmp_path):
    """Makes a query with a mechanism; its checkpoint is closed in the end."""

    def close(made):
        made.opened.close()  # a driver that begins anew has opened it anew

    with ExitStack() as stack:

        def make(mechanism="megaphone-fluid"):
            made = Query(tmp_path, mechanism)
            stack.callback(close, made)
            return made

        yield make
        faults.install(None)


def dies_at(wanted):
    def hook(point, context):
        if point == wanted:
            raise Died(context)

    faults.install(hook)


def test_a_stop_is_carried_out_once_and_the_next_epoch_pulls_from_the_checkpoint(query):
    run = query("runtime-restart")
    run.run(2)
    run.driver.command("rebalance", AWAY, "away")
    with pytest.raises(StopNeeded) as stop:
        run.run()
    run.driver.stopped(stop.value.epoch)
    run.run(2)
    assert [(p["epoch"], p["stop"], p["from_checkpoint"], p["drops"]) for p in run.plans()[2:]] == [
        (2, "query", False, []),
        (2, None, True, []),
        (3, None, False, [[0, 0]]),
    ]
    assert [event.to_json()["kind"] for event in run.events] == ["migration_begin", "migration_end"]


@pytest.mark.parametrize("noted", [False, True])
def test_a_driver_that_dies_around_a_stop_stops_again_only_if_it_was_not_noted(query, noted):
    run = query("runtime-restart")
    run.run(2)
    run.driver.command("rebalance", AWAY, "away")
    with pytest.raises(StopNeeded):
        run.run()
    if noted:
        run.driver.stopped(2)
    run.start()
    if not noted:
        with pytest.raises(StopNeeded):
            run.run()
        run.driver.stopped(2)
    run.run()
    assert run.plans()[-1]["pulls"] == [[0, 0, 3]]
    assert not run.driver.controller.migrating


def test_a_command_after_a_crash_waits_for_the_next_epoch_planned(query):
    run = query("runtime-restart")
    run.run(2)
    run.driver.command("rebalance", AWAY, "away")
    with pytest.raises(StopNeeded):
        run.run()
    run.driver.stopped(2)
    run.start()
    assert run.driver.command("rebalance", BACK, "back").from_epoch == 3
    run.run()
    assert run.driver.controller.location.tolist() == AWAY.tolist()
    with pytest.raises(StopNeeded):
        run.run()


def test_a_driver_dies_at_its_points_and_the_next_one_goes_on(query):
    run = query()
    run.run(2)
    run.driver.command("rebalance", AWAY, "away")
    for point, plans, observed in (("before-plan", 2, 2), ("after-plan", 3, 2), ("before-epoch-commit", 3, 3)):
        dies_at(point)
        with pytest.raises(Died, match="'migrating': True"):
            run.run()
        faults.install(None)
        assert (len(run.plans()), len(run.opened.read("observed"))) == (plans, observed)
        run.start()
    run.run()
    dies_at("between-pull-and-drop")
    with pytest.raises(Died):
        run.run()
    run.start()
    faults.install(None)
    run.run()
    assert run.plans()[-1]["drops"] == [[0, 0]]
    dies_at("between-pull-and-drop")
    run.run()


def test_journals_stay_short_and_a_new_driver_knows_the_same(query, monkeypatch):
    monkeypatch.setattr(checkpoints, "BASE_EPOCHS", 5)
    run = query()
    for goal in (AWAY, BACK, START, AWAY):
        run.driver.command("rebalance", goal, "there")
        run.run(4)
        assert len(run.plans()) + len(run.opened.read("observed")) <= 12
        known = run.driver.controller.to_json()
        run.start()
        assert run.driver.controller.to_json() == known
        assert run.driver.last_epoch == run.epoch - 1
    assert run.driver.controller.location.tolist() == AWAY.tolist()


@pytest.mark.parametrize("point", ["write_base", "rewrite", "before-epoch-commit"])
def test_an_epoch_that_became_the_base_is_run_again_under_its_plan(query, monkeypatch, point):
    """Spark has not committed the epoch when the driver dies during or after the new base."""
    monkeypatch.setattr(checkpoints, "BASE_EPOCHS", 3)
    run = query()
    run.run()
    run.driver.command("rebalance", AWAY, "away")
    run.run()
    with monkeypatch.context() as patch:
        if point == "before-epoch-commit":
            dies_at(point)
        else:
            where = checkpoints if point == "write_base" else checkpoints.Journal
            patch.setattr(where, point, lambda *_, **__: (_ for _ in ()).throw(Died()))
        with pytest.raises(Died):
            run.run()
    faults.install(None)
    plan = next(p for p in run.plans() if p["epoch"] == 2)
    run.start()
    run.run(3)
    assert [p for p in run.plans() if p["epoch"] == 2] in ([plan], [])
    assert run.driver.controller.location.tolist() == AWAY.tolist()


@pytest.mark.parametrize("epoch", [0, 1, 4])
def test_an_epoch_that_does_not_follow_the_journals_is_refused(query, epoch):
    run = query()
    run.run(3)
    run.start()
    run.epoch = epoch
    with pytest.raises(StateError, match=f"Spark begins epoch {epoch}, but the journals in .* end with epoch 2"):
        run.run()


def test_a_query_that_lost_this_part_of_its_checkpoint_does_not_begin_with_empty_state(query):
    run = query()
    run.epoch = 7
    with pytest.raises(StateError, match=r"epoch 7, but the journals in .* end with epoch -1"):
        run.run()


def test_journals_that_do_not_fit_together_are_refused(query, tmp_path):
    run = query()
    run.run(3)
    log = tmp_path / "rescale" / "plan.log"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(UsageError, match=r"do not fit together \(Epoch 2 was observed, but .*\): restore"):
        run.start()


def test_what_the_controller_observes_is_what_the_journal_says(query):
    run = query()
    run.run(2)
    assert run.opened.read("observed")[-1]["pull_ms"] == run.driver.controller.view(2).last.pull_ms == 1.235
    assert json.loads(json.dumps(run.driver.controller.to_json())) == run.driver.controller.to_json()


@pytest.mark.parametrize("goal", [
    [0, 0, 1, 65_537], [0, 0, 1, 65_535], [0, 0, 1, -1], [0, 0, 1, 1.5], [0, 0, 1, 1 << 40], [0, 0, 1, 1 << 70], [0, 1],
    [True, False, True, True], [],
])  # fmt: skip
def test_a_goal_that_the_journals_cannot_hold_is_refused_before_it_is_durable(tmp_path, goal):
    query = Query(tmp_path)
    query.run()
    with pytest.raises(UsageError, match="a number from 0 to 65534, for each of the 4 bins"):
        query.driver.command("rebalance", np.array(goal), "typo")
    assert query.opened.read("commands") == []
    query.start()
    query.run()
    assert query.driver.controller.routing.tolist() == START.tolist()
    query.opened.close()


def test_a_goal_has_as_many_workers_as_bins_at_most(tmp_path):
    query = Query(tmp_path)
    with pytest.raises(UsageError, match="4 bins are too few for 5 workers"):
        query.driver.command("rebalance", np.array([0, 0, 1, 4]), "far")
    query.driver.command("rebalance", np.array([0, 0, 1, 3]), "near")
    query.start()
    assert query.driver.controller.commanded.tolist() == [0, 0, 1, 3]
    query.opened.close()


def test_a_command_for_more_workers_than_can_run_is_refused_before_it_is_durable(tmp_path):
    @contextmanager
    def allowing(workers):
        if workers > 3:
            raise UsageError("Three are the most.")
        yield

    query = Query(tmp_path)
    query.driver.allowing = allowing
    query.driver.command("rescale", BACK, "three")
    with pytest.raises(UsageError, match="Three are the most"):
        query.driver.command("rescale", AWAY, "four")
    assert [entry["label"] for entry in query.opened.read("commands")] == ["three"]
    query.opened.close()


def test_what_a_start_writes_comes_before_its_first_epoch_and_once(tmp_path):
    query, written = Query(tmp_path), []
    query.driver.prepare = Preparation(first=lambda: written.append(query.opened.read("plan")))
    query.run(2)
    assert written == [[]]
    query.start()
    query.driver.prepare = Preparation(first=lambda: written.append("again"))
    query.driver.end()
    with pytest.raises(QueryEnded):
        query.run()
    assert written == [[]]
    query.opened.close()


def test_a_migration_is_under_way_until_the_metrics_have_its_last_epoch(query, monkeypatch):
    run, seen = query(), []
    driver = run.driver
    monkeypatch.setattr(driver.metrics, "take", lambda _: seen.append((driver.controller.migrating, driver.migrating)))
    driver.command("rebalance", AWAY, "away")
    run.run(3)
    assert (seen[-1], driver.migrating) == ((False, True), False)
