"""What a broker that does not answer is taken to say of topics."""

import pytest

from impls.driver.topicids import ids_of, names_of
from impls.errors import StateError

NOBODY = {"bootstrap.servers": "localhost:1"}


def test_the_names_of_topics_that_nobody_tells_are_an_error_and_their_ids_are_missing():
    with pytest.raises(StateError, match="The broker does not name its topics: "):
        names_of(NOBODY, 0.1)
    assert ids_of(NOBODY, ["a"], 0.1) == {}
