"""A results topic keeps its number of partitions for a query, as repeats are found by partition."""

import pytest

from impls.driver.outputs import keep_partitions
from impls.errors import UsageError


def test_another_number_of_partitions_of_a_topic_is_refused_and_another_topic_is_not(tmp_path):
    keep_partitions(tmp_path, "out", 4)
    keep_partitions(tmp_path, "more", 2)
    keep_partitions(tmp_path, "out", 4)
    with pytest.raises(UsageError, match=r"4 partitions of out, not 2: .* Give Output partitions=4, or another topic"):
        keep_partitions(tmp_path, "out", 2)


def test_a_damaged_note_is_refused(tmp_path):
    (tmp_path / "outputs.json").write_text("{")
    with pytest.raises(UsageError, match=r"outputs\.json is damaged"):
        keep_partitions(tmp_path, "out", 2)
