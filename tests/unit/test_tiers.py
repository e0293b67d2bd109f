"""Tiers: every test is in one hand, five suites in a row have all, and the loop is a part of each."""

import json
from pathlib import Path

import pytest
from tiers import COSTLY_S, HANDS, Traits, deal, hand_of, in_loop, in_suite

TESTS = Path(__file__).parents[1]

DEALT = [Traits(f"tests/test_{file}.py::test_it[{case}]", lengthy=True) for file in range(20) for case in range(20)]


def test_five_hands_have_every_test_once():
    assert all(sum(in_suite(test, [hand]) for hand in range(HANDS)) == 1 for test in DEALT)
    sizes = [sum(hand_of(test) == hand for test in DEALT) for hand in range(HANDS)]
    assert min(sizes) > len(DEALT) // HANDS // 2


def test_costly_tests_are_dealt_so_that_no_hand_takes_much_longer():
    costs = {f"test_{number}": float(4 + number**2 % 83) for number in range(100)} | {"test_long": 150.0}
    hands = deal(costs)
    assert hands == deal(dict(reversed(costs.items())))
    sums = [sum(took for name, took in costs.items() if hands[name] == hand) for hand in range(HANDS)]
    assert max(sums) - min(sums) <= 4
    assert set(hands) == set(costs)


def test_a_stored_time_is_that_of_a_costly_test_in_a_file_that_there_is():
    costs = json.loads((TESTS / "costs.json").read_text())
    assert min(costs.values()) >= COSTLY_S
    assert {name for name in costs if not (TESTS.parent / name.partition("::")[0]).exists()} == set()


@pytest.mark.parametrize("hand", range(HANDS))
def test_the_loop_and_the_capabilities_are_in_every_hand(hand):
    assert in_suite(Traits("tests/a.py::test_it"), [hand])
    assert in_suite(Traits("tests/a.py::test_it", lengthy=True, capability=True), [hand])


def test_a_sampled_case_out_of_the_loop_is_dealt():
    cases = [Traits(f"tests/a.py::test_it[{case}]", sampled=4) for case in range(100)]
    left = [case for case in cases if not in_loop(case)]
    assert 60 < len(left) < 90
    assert all(sum(in_suite(case, [hand]) for hand in range(HANDS)) == 1 for case in left)
