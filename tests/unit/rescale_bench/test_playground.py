"""What an example waits for: results, and the end of the query that sends them."""

import time

import pytest

from impls.driver.observed import RunningQuery
from impls.errors import StateError
from rescale_bench.playground import TopicRows

_NOBODY = "127.0.0.1:1"


class Ended(RunningQuery):
    """A query that has ended, by a failure if there is one."""

    def __init__(self, failure=None):
        super().__init__()
        self._failure = failure
        self._ended.set()

    def stop(self):
        self.await_end(0)


@pytest.mark.parametrize(
    ("failure", "sentence"),
    [
        (StateError("The query failed: no total"), "^The query failed: no total$"),
        (None, "^The query has ended with 0 of 3 results in alerts.$"),
    ],
)
def test_a_query_that_has_ended_is_not_waited_for_and_says_why(failure, sentence):
    rows, begin = TopicRows(_NOBODY, "alerts", 1), time.monotonic()
    try:
        with pytest.raises(StateError, match=sentence):
            rows.read(3, Ended(failure))
        assert time.monotonic() - begin < 30
    finally:
        rows.close()
