"""Commands of a control topic on random histories with drivers that die: each once, in an order that is explained."""

import json
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest
from controlled import Death, Died, Input, Query, findings, record
from hypothesis import given, settings
from hypothesis import strategies as st

from impls.driver import checkpoint

PARTITIONS = 2

conditions = st.one_of(
    st.none(),
    st.fixed_dictionaries({"time": st.integers(0, 60)}),
    st.fixed_dictionaries(
        {"offsets": st.dictionaries(st.integers(0, PARTITIONS - 1).map(str), st.integers(0, 30), min_size=1).map(
            lambda parts: {"in": parts}
        )}
    ),
)  # fmt: skip
commands = st.lists(st.tuples(st.integers(0, 1), st.integers(1, 4), conditions), min_size=1, max_size=12)
inputs = st.lists(
    st.lists(st.integers(0, 60), min_size=1, max_size=30).map(sorted), min_size=PARTITIONS, max_size=PARTITIONS
)
acts = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.integers(1, 5)),
        st.tuples(st.just("epoch"), st.tuples(*[st.integers(0, 6)] * PARTITIONS)),
        st.tuples(st.just("die"), st.tuples(st.integers(1, 9), st.booleans())),
        st.tuples(st.just("repeat"), st.integers(0, 11)),
        st.tuples(st.just("read anew"), st.none()),
        st.tuples(st.just("retain"), st.integers(0, 20)),
        st.tuples(st.just("garbage"), st.sampled_from([b"", b"{}", b'{"id": "bad"}', b'{"id": "x", "do": "fly"}'])),
    ),
    max_size=40,
)


def topic_of(drawn):
    """The control topic's records, and the condition of each command by id."""
    topic, wanted = [[], []], {}
    for number, (part, workers, condition) in enumerate(drawn):
        id_ = f"c{number}"
        topic[part].append(record(id_, workers, sender=f"s{part}", **({"from": condition} if condition else {})))
        wanted[id_] = condition
    return topic, wanted


def bounds(wanted, source):
    """The bound of each command with a condition, None for one that the input never reaches."""
    found = {}
    for id_, condition in wanted.items():
        if condition and "offsets" in condition:
            found[id_] = {"in": {int(p): n for p, n in condition["offsets"]["in"].items()}}
        elif condition:
            found[id_] = source.find(condition["time"], source.end)
    return found


def play(query, source, todo, death):
    """Lets a query live through what was drawn, and to the end of the input and the topic."""
    last = [("read", 99), *[("epoch", (9,) * PARTITIONS)] * 6, ("read", 99), *[("epoch", (0,) * PARTITIONS)] * 2]
    for act, what in [*todo, ("calm", None), *last]:
        try:
            if act == "read":
                query.read(what)
            elif act == "epoch":
                source.grow(what)
                query.run()
            elif act == "die":
                death.at(what[0], behind=what[1])
            elif act == "calm":
                death.at(0, behind=False)
            elif act == "garbage":
                query.topic[0].append(what)
            elif act == "repeat":
                there = [r for part in query.topic for r in part if r is not None]
                query.topic[1] += [there[what % len(there)]] if there else []
            elif act == "read anew":  # the position is lost: the client begins where the topic does
                query.next = dict.fromkeys(query.next, 0)
            elif act == "retain":  # what was read is deleted, but for the last records
                for part, read in query.log.pending.positions.items():
                    query.topic[part][: max(read - what, 0)] = [None] * max(read - what, 0)
        except Died:
            _start(query)


def _start(query):
    """Starts a driver, which may die of an append while it starts."""
    while True:
        try:
            query.start()
        except Died:
            continue
        query.epoch = query.driver.last_epoch + 1
        return


@pytest.mark.lengthy
@settings(max_examples=150)
@given(drawn=commands, times=inputs, todo=acts, base=st.sampled_from([3, 500]))
def test_each_command_is_carried_out_once_in_an_order_that_the_log_explains(drawn, times, todo, base):
    topic, wanted = topic_of(drawn)
    source = Input(times)
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        patch.setattr(checkpoint, "BASE_EPOCHS", base)
        death = Death(patch)
        query = stack.enter_context(Query(Path(folder), "q", topic, source))
        play(query, source, todo, death)
        done = query.done
        assert findings(done, query.begins, bounds(wanted, source), wanted, death.commanded) == []
        assert len({one["number"] for one in done}) == len(done)
        assert {json.dumps(one.value, sort_keys=True) for one in query.log.pending.unsent()} >= {
            json.dumps(one.value, sort_keys=True) for one in query.answers if one.value["outcome"] == "carried out"
        }


@pytest.mark.lengthy
@settings(max_examples=60)
@given(
    drawn=commands,
    times=inputs,
    first=st.lists(st.integers(0, 6), max_size=8),
    second=st.lists(st.integers(0, 6), max_size=8),
)
def test_two_queries_whose_epochs_begin_elsewhere_carry_out_comparable_commands_in_one_order(
    drawn, times, first, second
):
    """Both know all commands in time; those of no condition hold from the first epoch of each."""
    drawn = [(part, workers, condition or {"time": 0}) for part, workers, condition in drawn]
    topic, wanted = topic_of(drawn)
    orders = []
    for sizes in (first, second):
        source = Input(times)
        with tempfile.TemporaryDirectory() as folder, Query(Path(folder), "q", topic, source) as query:
            query.read(99)
            for size in [0, *sizes, 30, 0]:
                source.grow([size] * PARTITIONS)
                query.run()
            orders.append([one["id"] for one in query.done])
            assert findings(query.done, query.begins, bounds(wanted, source), wanted, orders[-1]) == []
    timed = [[id_ for id_ in order if "time" in wanted[id_]] for order in orders]
    assert timed[0] == timed[1]
