"""A small real-time query in every order of its events, as far as seconds reach."""

import math
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from every.choices import Choices, choices_of, text_of
from every.explore import explore, run
from every.small import Small

SMALLER = {"records": 4, "epochs": 1}
SECONDS = math.inf  # the limit of a test ends it: it takes 25 where nothing else runs


@pytest.mark.capability("on-demand")
@pytest.mark.parametrize("mechanism", ["megaphone-batched", "on-demand", "order-unaware"])
def test_every_order_with_one_deviation_loses_nothing(mechanism):
    found = explore(Small(mechanism, failures=0, **SMALLER), seconds=SECONDS, deviations=1)
    assert found.violation is None, found.violation.sentence
    assert found.complete == 1
    assert found.ends > 1


@pytest.mark.lengthy
@pytest.mark.parametrize("mechanism", ["megaphone-batched", "on-demand", "order-unaware"])
def test_a_task_dies_at_every_place_of_a_migration(mechanism):
    found = explore(Small(mechanism), seconds=SECONDS, deviations=0)
    assert found.violation is None, found.violation.sentence
    assert found.complete == 0


def test_choices_give_one_run():
    beginning = choices_of("3:1,9:1")
    once, twice = (run(Small(), Choices(beginning, set())) for _ in range(2))
    assert once.trace == twice.trace
    assert once.choices.seen == twice.choices.seen
    assert text_of(bytes(once.choices.taken)) == "3:1,9:1"


def test_time_that_is_over_is_no_proof():
    found = explore(Small(), seconds=0.0)
    assert (found.complete, found.whole, found.runs) == (-1, False, 0)
    assert found.waiting == 1
