"""What a broker that does not answer is taken to say of topics."""

import pytest

from impls.driver.topicids import admin_of, describe, ids_of, partitions_of
from impls.errors import StateError

NOBODY = {"bootstrap.servers": "localhost:1"}


def test_the_partitions_of_topics_without_an_answer_are_an_error_and_their_ids_are_missing(caplog):
    with pytest.raises(StateError, match="The broker does not name its topics: "):
        partitions_of(NOBODY, 0.1)
    assert ids_of(NOBODY, ["a"], 0.1) == {}
    assert describe(admin_of(NOBODY), ["b", "a"], 0.1) == ({}, {"a", "b"})
    assert describe(admin_of(NOBODY), []) == ({}, set())
    assert "these topics were made anew: a, b (" in caplog.messages[-1]
