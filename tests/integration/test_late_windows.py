"""Records that come when their window has been sent are late in both modes, with either kind of first stage."""

import late_windows
import pytest
from late_windows import Late
from linked import PARTITIONS
from scenarios import in_real_time

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600), pytest.mark.slow]


@pytest.fixture
def topics(topic_factory):
    return [topic_factory(2), topic_factory(PARTITIONS)]


@pytest.mark.parametrize("first", ["aggregate", "processor"])
def test_a_late_record_changes_no_window_that_was_sent(spark, kafka, topics, tmp_path, first):
    late_windows.scenario(Late(spark, kafka, topics, tmp_path, first))


@pytest.mark.parametrize("first", ["aggregate", "processor"])
def test_the_same_in_real_time(kafka, topics, tmp_path, first):
    in_real_time(late_windows.__file__, kafka, topics, tmp_path, first)
