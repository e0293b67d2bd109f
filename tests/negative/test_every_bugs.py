"""Bugs planted in real-time mode that the search through all orders of a small world finds within its bound."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "simulation"))

from every.choices import Choices
from every.cli import explore_all, replay
from every.explore import explore, run
from every.small import Small
from planted import results_not_sent_again
from planted_realtime import pull_before_final, queue_of_a_repeated_batch_kept, results_before_the_frame
from rich.console import Console

# the world, and the checks that may find it
BUGS = {
    pull_before_final: (Small(failures=0), {"results", "offsets", "restore"}),
    results_not_sent_again: (Small(loses=False), {"results"}),
    results_before_the_frame: (Small(), {"results", "repeats"}),
    queue_of_a_repeated_batch_kept: (Small("order-unaware"), {"results", "offsets", "restore"}),
}


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_bug_is_found_without_a_deviation_and_its_choices_find_it_again(plant):
    small, checks = BUGS[plant]
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        found = explore(small, seconds=500.0, deviations=0).violation
        assert found is not None
        assert found.violation in checks, found.sentence
        again = run(small, Choices(bytes(found.choices.taken), set()))
    assert (again.violation, again.sentence) == (found.violation, found.sentence)
    assert run(small, Choices(bytes(found.choices.taken), set())).violation is None


def test_the_command_ends_with_1_and_says_how_to_see_a_violation_again(capsys):
    with pytest.MonkeyPatch.context() as patch:
        pull_before_final(patch)
        assert explore_all(Console(soft_wrap=True), minutes=5, jobs=1) == 1
        assert "Again: ./inv simulate --replay megaphone-batched=-" in capsys.readouterr().out
        assert replay(Console(), "megaphone-batched=-") == 1
    assert replay(Console(), "megaphone-batched=-") == 0
    assert replay(Console(), "megaphone-batched=1:200") == replay(Console(), "none=-") == 2
