"""A results topic keeps its number of partitions for a query."""

import pytest

from impls.driver.outputs import keep_outputs
from impls.errors import UsageError


def test_another_number_of_partitions_of_a_topic_is_refused_and_another_topic_is_not(tmp_path):
    keep_outputs(tmp_path, "out", 8, begins=True)
    keep_outputs(tmp_path, "out", 4, begins=True)  # the first start was refused
    keep_outputs(tmp_path, "more", 2, begins=False)
    keep_outputs(tmp_path, "out", 4, begins=False)
    with pytest.raises(UsageError, match=r"4 partitions of out, not 2: .* Give Output partitions=4, or another topic"):
        keep_outputs(tmp_path, "out", 2, begins=False)


@pytest.mark.parametrize("text", ["{", "[]", '{"named": true}'])
def test_a_damaged_note_is_refused(tmp_path, text):
    (tmp_path / "outputs.json").write_text(text)
    with pytest.raises(UsageError, match=r"outputs\.json is damaged"):
        keep_outputs(tmp_path, "out", 2, begins=False)
