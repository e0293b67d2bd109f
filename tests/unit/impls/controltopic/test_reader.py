"""What the broker says is wrong with a control topic is the reader's trouble, until it can be read again."""

from types import SimpleNamespace

import pytest

from impls.controltopic import client
from impls.controltopic.client import CommandReader, Record
from impls.controltopic.topic import ControlTopic


class Broker:
    """A control topic of one partition, with messages to come."""

    def __init__(self, *messages):
        self._messages = list(messages)

    def __call__(self, _settings):
        return self

    def list_topics(self, name, _timeout):
        return SimpleNamespace(topics={name: SimpleNamespace(partitions={0: None})})

    def incremental_assign(self, _places): ...

    def poll(self, _timeout):
        return self._messages.pop(0) if self._messages else None

    def consume(self, _most, _timeout):
        return []


def message(offset, error=""):
    said = SimpleNamespace(str=lambda: error) if error else None
    return SimpleNamespace(
        partition=lambda: 0, offset=lambda: offset, value=lambda: b"command", error=lambda: said
    )  # fmt: skip


@pytest.fixture
def reader(monkeypatch):
    broker = Broker(message(0), message(1, "Broker: Topic authorization failed"), message(2))
    monkeypatch.setattr(client, "Consumer", broker)
    return CommandReader(ControlTopic("broker:9092", "control", "query"))


def test_an_error_of_the_topic_is_no_record_and_is_in_the_status(reader):
    assert reader.take(0) == [Record((0, 0), b"command")]
    assert reader.trouble == ""
    assert reader.take(0) == []
    assert reader.trouble == "Broker: Topic authorization failed"
    assert reader.take(0) == [Record((0, 2), b"command")]
