"""A wait ends when what it waits for is there, or says at its deadline what was not."""

import pytest

from harness.lab.waiting import wait_for
from impls.errors import StateError


def test_a_wait_tends_between_its_looks_and_ends():
    looks, tended = iter([False, False, True]), []
    wait_for(lambda: next(looks), "the third look", 30, tend=lambda: tended.append(1))
    assert len(tended) == 2


@pytest.mark.parametrize("error", [StateError, TimeoutError])
def test_a_wait_names_what_did_not_come(error):
    with pytest.raises(error, match=r"^Timed out after 0 s waiting for the sea\.$"):
        wait_for(lambda: False, "the sea", 0, error=error)
