"""Any processor gives what pyspark's own tester of processors gives, while its state moves and workers are lost."""

import itertools
from collections import defaultdict

import pytest
from drawn import INPUT, OUTPUT, Oracle, drawn, plain
from hypothesis import given, note
from hypothesis import strategies as st
from processing import Given, ProcessorRun
from timed import close_all, read_both_ways, spread

DELAY_MS, USERS = 50, ("a", "b", "c", "d" * 200, "d" * 199 + "e")


@st.composite
def inputs(draw):
    """Rows of each epoch, of which some come late."""
    epochs, places = [], itertools.count()
    for number in range(draw(st.integers(2, 6))):
        row = st.tuples(st.sampled_from(USERS), st.integers(0, 5), st.integers(-80, 120))
        rows = draw(st.lists(row, max_size=6))
        epochs.append([(user, n, 200 + 70 * number + ms, next(places)) for user, n, ms in rows])
    return epochs


def told(query):
    """What each user was told, in order."""
    users = defaultdict(list)
    for result in query.results():
        users[result["user"]].append(result["told"])
    return users


def rows_of(rows):
    """Rows of state as `Oracle.state` has them; the user `end` only moves time on."""
    found = [
        (row.key.user, row.kind, row.name, str(plain(row.field)), str(plain(row.value)))
        for row in rows if row.key.user != "end"
    ]  # fmt: skip
    assert len(set(found)) == len(found)
    return set(found)


@pytest.mark.parametrize("timed", [False, True], ids=["without time", "event time"])
@given(random=st.randoms(use_true_random=False), epochs=inputs())
def test_it_gives_what_sparks_tester_gives(tmp_path_factory, timed, random, epochs):
    processor = drawn(random, timed=timed)
    note(f"{processor} {epochs}")
    mode = "eventtime" if timed else "none"
    made = Given(processor, OUTPUT, mode, INPUT, event="ms" if timed else "", delay_ms=DELAY_MS if timed else 0)
    query = ProcessorRun(tmp_path_factory.mktemp("drawn"), made, mechanism="megaphone-fluid")
    tested = Oracle(processor, timed=timed, delay_ms=DELAY_MS)
    try:
        for number, rows in enumerate([*epochs, [("end", 0, 10_000, 1_000)], []]):
            if number % 3 == 1:
                query.move(spread(number, 3))
            if number == 2:
                query.lose(0)
            query.epoch(rows)
            tested.epoch(rows)
        query.settle()
        assert rows_of(read_both_ways(query).itertuples(index=False)) == tested.state(USERS)
    finally:
        close_all()
    assert told(query) == tested.told
