"""The floor: what counts, and what is said when its process has ended."""

import os
import time

import pytest

from generators.stream import keycount_values
from harness.lab.engines.engine import Job
from harness.lab.engines.floor import FloorEngine
from harness.lab.engines.floor_count import FloorCounts
from impls.errors import StateError


def test_a_record_of_time_0_makes_state_and_every_other_has_a_result():
    counts, keys = FloorCounts(), [7, 7, 3, 7]
    found = [counts.of(value) for value in keycount_values(keys, [0, 5, 10**15, 10**15])]
    assert found == [None, ("7", "2"), ("3", "1"), ("7", "3")]


def test_a_process_that_has_ended_is_named_with_its_last_words(tmp_path):
    engine = FloorEngine(None, Job("127.0.0.1:1", ("in", "preload"), "out", "group", 2, tmp_path / "engine"))
    engine.start(2)
    try:
        (pid,) = engine.pids().values()
        engine.check()
        engine.rescale(4)
        assert engine.read_topics() == ("in", "preload")
        assert engine.kill_worker() == pid
        assert [*engine.pids().values()] != [pid]
        os.kill(engine.pids()["floor"], 9)
        end = time.monotonic() + 60
        while engine.running and time.monotonic() < end:
            time.sleep(0.01)
        with pytest.raises(StateError, match=r"The floor has ended \(exit code 137\): .*; its log is .*floor\.log"):
            engine.check()
    finally:
        engine.stop()
