"""The schedule of a fault test: what it must contain, and that a seed repeats it."""

from collections import Counter

import pytest

from harness.experiment.schedules import VICTIMS
from harness.options import parse_names
from harness.suites.faults.report import FaultOutcome, report_of
from harness.suites.faults.schedule import EXPECTED, KILLS, MECHANISMS, QUICK, Fault, draw_chain_schedule, draw_schedule
from impls.errors import UsageError
from impls.faults import POINTS

SEEDS = range(20)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_fault_and_enough_of_every_mechanism(seed):
    schedule = draw_schedule(seed)
    kills = {(fault.victim, fault.point) for fault in schedule if fault.name in KILLS}
    assert kills == {(victim, point) for victim in VICTIMS for point in POINTS}
    assert {fault.name for fault in schedule} == set(EXPECTED)
    by_mechanism = Counter(fault.mechanism for fault in schedule if fault.name in KILLS and fault.phase == "migrating")
    assert set(by_mechanism) == set(MECHANISMS)
    assert min(by_mechanism.values()) >= 20
    assert len(schedule) >= 100
    assert {fault.phase for fault in schedule} == {"steady", "migrating"}
    assert [fault.number for fault in schedule] == list(range(len(schedule)))
    assert len({fault.id for fault in schedule}) == len(schedule)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_chain_meets_a_hundred_kills_each_once_at_least(seed):
    schedule = draw_chain_schedule(seed)
    assert (len(schedule), {fault.name for fault in schedule}) == (100, set(KILLS))
    assert {fault.name for fault in draw_chain_schedule(seed, quick=True)} == set(QUICK) & set(KILLS)
    assert [fault.number for fault in schedule] == list(range(100))


def test_a_seed_gives_the_same_schedule_and_another_one_another():
    assert draw_schedule(7) == draw_schedule(7)
    assert draw_schedule(7) != draw_schedule(8)


@pytest.mark.parametrize("mechanisms", [["megaphone-fluid"], ["megaphone-fluid", "runtime-restart"]])
def test_fewer_mechanisms_still_meet_every_kill(mechanisms):
    schedule = draw_schedule(3, mechanisms)
    assert {fault.name for fault in schedule} == set(EXPECTED)
    assert {fault.mechanism for fault in schedule} == set(mechanisms)


def test_faults_of_a_mechanism_stand_together():
    mechanisms = [fault.mechanism for fault in draw_schedule(1)]
    assert list(dict.fromkeys(mechanisms)) == [m for i, m in enumerate(mechanisms) if i == 0 or mechanisms[i - 1] != m]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_quick_schedule_has_twelve_faults_with_every_victim(seed):
    schedule = draw_schedule(seed, quick=True)
    assert sorted(fault.name for fault in schedule) == sorted(QUICK)
    assert len(schedule) == 12
    assert {fault.victim for fault in schedule} >= set(VICTIMS)
    assert any(fault.expected == "refuses" for fault in schedule)


def test_only_what_is_asked_for():
    schedule = draw_schedule(1, ["megaphone-fluid"], only=["worker@after-commit", "disk@full"])
    assert [fault.name for fault in schedule] == ["worker@after-commit", "disk@full"]


@pytest.mark.parametrize("names", ["worker@nowhere", "disk@full,mouse@after-commit"])
def test_an_unknown_fault_is_named(names):
    with pytest.raises(UsageError, match="is unknown: use one of"):
        parse_names(names, EXPECTED, "fault")


def test_kills_survive_and_damage_without_a_copy_is_refused():
    assert {EXPECTED[name] for name in KILLS} == {"survives"}
    assert {name for name, expected in EXPECTED.items() if expected == "refuses"} == {
        "disk@full", "disk@read-only", "frame@truncated", "frame@flipped", "snapshot@truncated", "snapshot@flipped",
    }  # fmt: skip


def report(verdict, answer):
    fault = Fault(0, "megaphone-fluid", "worker", "after-commit", "migrating", 1)
    return report_of(1, [fault], [FaultOutcome(fault, verdict)], {"megaphone-fluid": answer}, seconds=1.0)


VALID = {"verdict": "valid", "lost": 0, "doubled": 0, "wrong": 0, "out_of_order": 0, "reasons": []}


def test_a_report_is_good_when_all_survived_and_the_answer_is_valid():
    assert report("survived", VALID)["good"]


@pytest.mark.parametrize("verdict", ["refused", "restarted", "crashed", "stuck", "missed"])
def test_a_report_is_not_good_when_a_fault_ended_otherwise(verdict):
    assert not report(verdict, VALID)["good"]


@pytest.mark.parametrize(
    "answer", [{**VALID, "verdict": "unknown"}, {**VALID, "verdict": "invalid", "lost": 1}, {**VALID, "doubled": 2}]
)
def test_a_report_is_not_good_when_the_output_is_not(answer):
    assert not report("survived", answer)["good"]


def test_a_report_is_not_good_when_faults_were_not_inflicted():
    fault = Fault(0, "megaphone-fluid", "worker", "after-commit", "migrating", 1)
    made = report_of(1, [fault], [], {"megaphone-fluid": VALID}, seconds=1.0)
    assert not made["good"]
    assert made["totals"]["not inflicted"] == 1
