"""A query of two stages as one: a command goes to both, and what is still to be done is that of both."""

from types import SimpleNamespace

import numpy as np
import pytest

from harness.experiment.make import make_experiment
from harness.experiment.schedules import STAGES
from harness.run.chained import ChainedQuery, second_of

DONE = {"watermark": 9, "migrating": False, "misplaced": 0, "queued": 0, "settled": True, "epoch": 4}


class Handle:
    """A stage whose status the test says, and that keeps its commands."""

    def __init__(self, goal=(0, 1), **status):
        self.goal, self.commands, self.known = np.array(goal, np.int32), [], {**DONE, **status}

    def status(self):
        return self.known

    def rebalance(self, goal, *, label):
        self.commands.append((goal.tolist(), label))
        return f"{label}-{len(self.commands)}"


def query(first, second, **more):
    return ChainedQuery(SimpleNamespace(stages=dict(zip(STAGES, (first, second), strict=True))), **more)


def test_a_command_goes_to_both_stages():
    handles = Handle(), Handle()
    assert query(*handles).rebalance(np.array([1, 1], np.int32), label="there") == "there-1"
    assert [handle.commands for handle in handles] == [[([1, 1], "there")]] * 2


def test_a_command_that_one_stage_alone_has_got_goes_to_the_other_one_too():
    first, second = Handle((1, 1)), Handle((0, 1))
    query(first, second)
    assert (first.commands, second.commands) == ([], [([1, 1], "as the first stage")])
    second = Handle((0, 1))
    query(Handle((1, 1)), second, autoscaled=True)
    assert second.commands == []


@pytest.mark.parametrize(
    ("first", "second", "settled"),
    [
        ({}, {}, True),
        ({"settled": False}, {}, False),
        ({}, {"settled": False}, False),
        ({}, {"watermark": 8}, False),
        ({}, {"watermark": None}, False),
        ({"watermark": None}, {"watermark": None}, True),
    ],
)
def test_all_is_done_when_the_second_stage_has_followed_the_first(first, second, settled):
    assert query(Handle(**first), Handle(**second)).status()["settled"] is settled


def test_what_is_left_is_that_of_both_stages():
    found = query(Handle(misplaced=3, queued=2), Handle(migrating=True, misplaced=4, queued=5, epoch=7)).status()
    assert (found["migrating"], found["misplaced"], found["queued"], found["epoch"]) == (True, 7, 7, 4)
    assert [stage["epoch"] for stage in found["stages"].values()] == [4, 7]


def test_a_query_has_a_second_stage_where_this_runtime_answers_it():
    def seconds(query, mechanism):
        experiment = make_experiment(workload="nexmark", query=query, rate="1000", mechanism=mechanism)
        return [second_of(run) is not None for run in experiment.runs()]

    assert seconds("q5", "meces,native-repartition") == [True, False]
    assert seconds("q8", "meces") == [False]
