"""Seats: workers stay at home, the others spread, and numbers for a rescale to some hosts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from impls.errors import UsageError
from impls.protocol.seats import numbers_on, renumbered, rounds_needed, seat_workers, workers_of_seats

SEATS = ("a", "a", "b", "b", "c", "c")


def hosts_of(seat_of, seats=SEATS):
    return [seats[seat] for seat in seat_of]


def test_workers_without_a_home_spread_evenly():
    assert sorted(hosts_of(seat_workers(SEATS, 3, {}))) == ["a", "b", "c"]
    assert sorted(hosts_of(seat_workers(SEATS, 6, {}))) == sorted(SEATS)


def test_an_owner_stays_at_home_and_keeps_its_seat():
    homes = {0: "c", 1: "c", 2: "a"}
    first = seat_workers(SEATS, 3, homes, owners={0, 1, 2}, before={0: 5, 1: 4, 2: 1})
    assert first == (5, 4, 1)
    again = seat_workers(("b", "b", "c", "c", "a", "a"), 3, homes, owners={0, 1, 2}, before={0: 5, 1: 4, 2: 1})
    assert hosts_of(again, ("b", "b", "c", "c", "a", "a")) == ["c", "c", "a"]


def test_a_worker_whose_host_is_gone_moves_and_no_other_does():
    homes = {0: "a", 1: "b", 2: "b", 3: "c"}
    left = ("a", "a", "c", "c")
    assert hosts_of(seat_workers(left, 4, homes, owners=range(4)), left) == ["a", "a", "c", "c"]


def test_a_host_that_comes_back_takes_nobody_from_another_host():
    homes = {0: "a", 1: "a", 2: "a", 3: "a"}
    seats = ("a", "a", "b", "b", "a", "a", "b", "b")
    assert set(hosts_of(seat_workers(seats, 4, homes, owners=range(4)), seats)) == {"a"}


def test_an_executor_that_joins_takes_no_worker_from_a_host_with_fewer_slots_than_workers():
    homes = dict.fromkeys(range(4), "b")
    joined = ("a", "a", "b", "b")
    rounds = rounds_needed(joined, 1, 4, homes, range(4))
    assert rounds == 2, "four workers sit where two slots are"
    seats = joined * rounds
    assert set(hosts_of(seat_workers(seats, 4, homes, owners=range(4)), seats)) == {"b"}
    assert rounds_needed(seats, rounds, 4, homes, range(4)) == rounds, "and it stays at that"


def test_seats_need_one_round_where_all_workers_have_a_slot_at_home():
    spread = {0: "a", 1: "b", 2: "c", 3: "c"}
    assert rounds_needed(SEATS, 1, 4, spread, range(4)) == 1
    assert rounds_needed(SEATS * 2, 2, 4, spread, range(4)) == 1, "seats that were made for more are too many"
    assert rounds_needed(SEATS, 1, 7, spread, range(4)) == 2, "seven workers on six slots"
    gone = dict.fromkeys(range(4), "z")
    assert rounds_needed(SEATS, 1, 4, gone, range(4)) == 1, "nobody is at home on a host that is gone"
    alone = dict.fromkeys(range(4), "a")
    assert rounds_needed(SEATS, 1, 4, alone, {0, 1}) == 1, "who owns nothing can sit anywhere"


def test_workers_that_own_nothing_go_where_the_command_allows():
    homes = {0: "a", 1: "b", 2: "c", 3: "c"}
    seated = hosts_of(seat_workers(SEATS, 4, homes, owners={0, 1, 2}, allowed={"a", "b"}))
    assert seated[:3] == ["a", "b", "c"], "who owns state stays until it is drained"
    assert seated[3] in {"a", "b"}


def test_too_few_seats_on_allowed_hosts_leave_no_worker_without_one():
    assert len(set(seat_workers(SEATS, 5, {}, allowed={"a"}))) == 5


def test_fewer_seats_than_workers_are_refused():
    with pytest.raises(ValueError, match="3 workers need as many seats"):
        seat_workers(("a", "b"), 3, {})


def test_the_worker_of_each_seat_is_known():
    assert workers_of_seats((3, 0), 5) == (1, -1, -1, 0, -1)


@given(seats=st.lists(st.sampled_from("abcd"), min_size=1, max_size=12), data=st.data())
def test_every_worker_has_a_seat_of_its_own_and_as_few_owners_move_as_can_be(seats, data):
    workers = data.draw(st.integers(1, len(seats)))
    homes = data.draw(st.dictionaries(st.integers(0, workers - 1), st.sampled_from("abcdef")))
    owners = data.draw(st.sets(st.integers(0, workers - 1)))
    before = data.draw(st.dictionaries(st.integers(0, workers - 1), st.integers(0, 14)))
    allowed = data.draw(st.sets(st.sampled_from("abcdef")))
    seat_of = seat_workers(seats, workers, homes, owners=owners, before=before, allowed=allowed)
    assert len(set(seat_of)) == workers
    for host in set(homes.values()):
        at_home = [w for w in owners if homes.get(w) == host]
        staying = [w for w in at_home if seats[seat_of[w]] == host]
        assert len(staying) == min(len(at_home), seats.count(host)), "an owner leaves only a host that is full"


def test_numbers_on_hosts_keep_who_is_there_and_fill_from_below():
    homes = {0: "a", 1: "b", 2: "c", 3: "c"}
    assert numbers_on(2, ["a", "b"], homes, [0, 1, 2, 3], SEATS) == (0, 1)
    assert numbers_on(3, ["b", "c"], homes, [0, 1, 2, 3], SEATS) == (1, 2, 3)
    assert numbers_on(4, ["b", "c"], homes, [0, 1, 2, 3], SEATS) == (1, 2, 3, 4)
    assert numbers_on(3, ["c"], homes, [1, 2], SEATS) == (0, 2, 3)


def test_numbers_on_hosts_give_a_host_that_came_back_its_share():
    crowded = dict.fromkeys(range(4), "b")
    numbers = numbers_on(4, ["a", "b"], crowded, range(4), SEATS)
    assert numbers == (0, 1, 4, 5), "two stay, and two that own nothing go where a seat is free"
    seats = ("a", "a", "b", "b", "a", "a", "b", "b")
    homes = {**crowded}
    at = hosts_of(seat_workers(seats, 6, homes, owners=range(4), allowed={"a", "b"}), seats)
    assert at == ["b"] * 4 + ["a"] * 2


@pytest.mark.parametrize(
    ("hosts", "known", "named"),
    [
        (["a", "z"], SEATS, "The cluster has no host z: its hosts are a, b, c."),
        ([], SEATS, "The cluster is to run the query on no host at all: its hosts are a, b, c."),
        (["a"], (), "This query runs on one host: only a query on a cluster can be given hosts."),
    ],
)
def test_a_host_that_is_not_there_is_refused(hosts, known, named):
    with pytest.raises(UsageError) as refused:
        numbers_on(2, hosts, {}, [0], known)
    assert str(refused.value) == named


def test_an_assignment_is_renumbered_by_places():
    current = np.array([0, 2, 5, 2], np.int32)
    assert renumbered(current, (2, 7)).tolist() == [2, 0, 3, 0]
