"""What the stages of a chain read."""

import pytest

from impls.errors import UsageError
from impls.stages import Stage, inputs_of


def stages(*described):
    """Stages from texts such as "join: left right"."""
    found = []
    for text in described:
        name, _, inputs = text.partition(": ")
        found.append(Stage(name, None, 1, inputs=tuple(inputs.split())))
    return found


def test_a_line_reads_the_stage_before_and_a_stage_may_name_others():
    assert inputs_of("c", stages("a", "b", "c"), ["input"]) == {"a": ["input"], "b": ["a"], "c": ["b"]}
    diamond = stages("bids: all", "sold: all", "join: bids sold", "top")
    assert inputs_of("c", diamond, ["all"]) == {
        "bids": ["all"], "sold": ["all"], "join": ["bids", "sold"], "top": ["join"],
    }  # fmt: skip
    assert inputs_of("c", stages("a", "b: right", "j: a b"), ["left", "right"])["a"] == ["left"]


@pytest.mark.parametrize(
    ("described", "sources", "sentence"),
    [
        (["a"], ["input"], "two stages at least"),
        (["a", "b c"], ["input"], "The name 'b c' cannot be that of a topic"),
        (["a", "input"], ["input"], "Two stages or inputs have the name 'input'"),
        (["a", "b", "a"], ["input"], "Two stages or inputs have the name 'a'"),
        (["a", "b: c", "c"], ["input"], "The stage b reads 'c': name one of input, a"),
        (["a", "b: input", "c"], ["input"], "Nobody reads 'a'"),
        (["a", "b"], ["left", "right"], "Nobody reads 'right'"),
    ],
)
def test_what_nobody_reads_or_is_not_there_is_refused(described, sources, sentence):
    with pytest.raises(UsageError, match=sentence):
        inputs_of("chain", stages(*described), sources)
