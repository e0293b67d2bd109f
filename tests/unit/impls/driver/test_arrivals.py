"""How far a topic goes, asked of a broker that has just started, or that does not know the topic."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from impls.driver.arrivals import end_offsets, ends_to_read
from impls.errors import StateError


class Answers:
    """A client whose answers are told before."""

    def __init__(self, *answers):
        self._answers = iter(answers)

    def get_watermark_offsets(self, _place, _timeout):
        if isinstance(answer := next(self._answers), KafkaError):
            raise KafkaException(answer)
        return answer if isinstance(answer, tuple) else (0, answer)

    def list_topics(self, topic, timeout):
        assert (topic, timeout > 0) == ("t", True)


NOT_YET, DOWN = KafkaError(KafkaError._UNKNOWN_PARTITION), KafkaError(KafkaError._TRANSPORT)
FORBIDDEN, DISTRUSTED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), KafkaError(KafkaError._SSL)


def test_a_broker_that_has_just_started_is_asked_again():
    leaderless = KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION)
    assert end_offsets(Answers(DOWN, NOT_YET, leaderless, 7, 8), [("t", 0), ("t", 1)]) == {("t", 0): 7, ("t", 1): 8}


@pytest.mark.parametrize("answers", [[FORBIDDEN], [DISTRUSTED], [NOT_YET] * 2, [DOWN] * 2])
def test_other_errors_and_the_end_of_the_time_are_told(answers):
    with pytest.raises(StateError, match="The broker does not say how far its topics go: "):
        end_offsets(Answers(*answers), [("t", 0)], 0.01)


def test_what_retention_has_deleted_is_not_to_be_read():
    places = [("t", number) for number in range(3)]
    assert list(ends_to_read(Answers((3, 7), (7, 7), (0, 0)), places).values()) == [7, 0, 0]
