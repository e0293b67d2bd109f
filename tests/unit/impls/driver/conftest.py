"""Queries whose pipeline changes, ended with the test."""

from contextlib import ExitStack

import pytest
from changed import ChangedQuery


@pytest.fixture
def query(tmp_path):
    """query(...) makes a `ChangedQuery`."""
    with ExitStack() as stack:

        def make(*args, **how):
            made = ChangedQuery(tmp_path, *args, **how)
            stack.callback(made.stop)
            return made

        yield make
