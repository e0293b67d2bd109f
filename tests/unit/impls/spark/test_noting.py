"""A running query looks at its topics before each epoch and when it ends."""

from typing import Any

import pytest

from impls.errors import StateError
from impls.spark.identity import Identified
from impls.spark.input import QueryInput
from impls.spark.known import RunningTopics
from impls.spark.topics import Reading, Topics

NOBODY = {"bootstrap.servers": "localhost:1"}


def input_of(tmp_path, *readings: Reading, broker: dict[str, str] | None = None) -> QueryInput:
    frame: Any = None
    return QueryInput(frame, Identified(frame, carried=True), Topics(readings), (), b"", broker, tmp_path / "spark")


def run(epoch_of, started) -> Exception | None:
    started()
    for number in range(2):
        epoch_of("batch", number)
    return None


def test_topics_are_noted_before_each_epoch_and_at_the_end(tmp_path, monkeypatch):
    calls: list[Any] = []
    monkeypatch.setattr(RunningTopics, "note", lambda _self, *, last=False: calls.append("last" if last else "note"))
    read = input_of(tmp_path, Reading(("in",)), Reading(None, 1), broker=NOBODY)
    noting = read.noting(run, tmp_path, real_time=False, fsync=False)
    assert noting(lambda batch, number: calls.append((batch, number)), lambda: calls.append("started")) is None
    assert calls == ["started", "note", ("batch", 0), "note", ("batch", 1), "last"]


def test_they_are_also_noted_when_the_query_fails(tmp_path, monkeypatch):
    calls: list[bool] = []
    monkeypatch.setattr(RunningTopics, "note", lambda _self, *, last=False: calls.append(last))

    def fails(_epoch_of, _started) -> None:
        raise StateError("broken")

    noting = input_of(tmp_path, Reading(None), broker=NOBODY).noting(fails, tmp_path, real_time=False, fsync=False)
    with pytest.raises(StateError, match="broken"):
        noting(lambda *_: None, lambda: None)
    assert calls == [True]


def test_a_query_without_a_broker_runs_as_it_is(tmp_path):
    assert input_of(tmp_path, Reading(None)).noting(run, tmp_path, real_time=False, fsync=False) is run
