"""Tiers: every test is in one hand, five suites in a row have all, and the loop is a part of each."""

import pytest
from tiers import HANDS, Traits, hand_of, in_loop, in_suite

DEALT = [Traits(f"tests/test_{file}.py::test_it[{case}]", lengthy=True) for file in range(20) for case in range(20)]


def test_five_hands_have_every_test_once():
    assert all(sum(in_suite(test, [hand]) for hand in range(HANDS)) == 1 for test in DEALT)
    sizes = [sum(hand_of(test) == hand for test in DEALT) for hand in range(HANDS)]
    assert min(sizes) > len(DEALT) // HANDS // 2


def test_a_file_whose_tests_belong_together_is_in_one_hand():
    together = {hand_of(Traits(test.name, lengthy=True, together=True)) for test in DEALT[:20]}
    assert len(together) == 1
    assert len({hand_of(test) for test in DEALT[:20]}) == HANDS


@pytest.mark.parametrize("hand", range(HANDS))
def test_the_loop_and_the_capabilities_are_in_every_hand(hand):
    assert in_suite(Traits("tests/a.py::test_it"), [hand])
    assert in_suite(Traits("tests/a.py::test_it", lengthy=True, capability=True), [hand])


def test_a_sampled_case_out_of_the_loop_is_dealt():
    cases = [Traits(f"tests/a.py::test_it[{case}]", sampled=4) for case in range(100)]
    left = [case for case in cases if not in_loop(case)]
    assert 60 < len(left) < 90
    assert all(sum(in_suite(case, [hand]) for hand in range(HANDS)) == 1 for case in left)
