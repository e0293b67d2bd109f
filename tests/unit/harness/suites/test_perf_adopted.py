"""The part on adopted state: what it finds of its rounds, and which results are wrong."""

import numpy as np
import pytest

from harness.suites.perf.adopted import AdoptedSettings, Adoption, CountResults, check, findings
from impls.errors import StateError

SETTINGS = AdoptedSettings(keys=3, rate=1, workers=2, goal=4, lead_in_s=1.0, steady_s=1.0, after_s=1.0)
RECORDS = np.array([0, 2, 2, 2])


def counts(*rows: tuple[int, int]) -> CountResults:
    key, n = np.array(rows, np.int64).reshape(-1, 2).T
    return CountResults(np.zeros(len(rows), np.int32), np.arange(len(rows)), key, n)


def test_the_worst_of_few_rounds_is_held_against_the_bounds():
    rounds = [Adoption(3, s, 100.0, ratio, 90.0, 99.0, 7, "quiet") for s, ratio in ((9, 1.1), (29, 1.2), (20, 1.3))]
    result = findings(rounds, SETTINGS)
    assert [(check.value, check.holds) for check in result.checks] == [(20, True), (1.2, False)]
    assert "All 21 results were checked" in result.tables[0].note


def test_counts_ascend_to_all_records_of_a_key_with_the_one_before_the_adoption():
    check(RECORDS, counts((2, 2), (0, 2), (2, 4)), 3)


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([(0, 2), (2, 4), (2, 4)], "Key 2 had count 4 and then 4"),
        ([(0, 2), (2, 4), (2, 3)], "Key 2 had count 4 and then 3"),
        ([(0, 1), (2, 4)], "1 keys have a wrong count: key 0 has 1, not 2"),
        ([(2, 4)], "1 keys have a wrong count: key 0 has 1, not 2"),
        ([(0, 2), (2, 4), (1, 2)], "1 keys have a wrong count: key 1 has 2, not 1"),
    ],
    ids=["twice", "back", "state lost", "result lost", "doubled"],
)
def test_a_wrong_count_is_found(rows, why):
    with pytest.raises(StateError, match=why):
        check(RECORDS, counts(*rows), 3)
