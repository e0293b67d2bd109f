"""A running query's pipeline changes: what it computes, what it refuses, and what a crash in its midst leaves."""

import threading
from collections import Counter
from contextlib import suppress
from dataclasses import replace

import pytest
from changed import KEYS, Fields, Tally, from_fields, some, to_fields

from impls.errors import StateError, UsageError
from impls.operators import Aggregate, DenseCount, Filter, HashCount, Map
from impls.protocol.events import ChangeDone, ChangeRefused


def test_an_operator_is_replaced_and_every_record_counts_once(query):
    one = query()
    some(3, one)
    assert one.run_until(one.replace(Tally("second")))["state"] == "done"
    some(2, one)
    one.check()
    assert set(map(tuple, one.names().values())) == {("first", "second")}
    assert [entry["bins"] for entry in one.pipeline()] == [0, 16]


def test_a_filter_is_put_in_and_taken_out_again(query):
    one = query()
    some(2, one)
    one.run_until(one.insert(Filter("odd", lambda row: row["value"] % 2, ("value",))))
    begin = next(event.epoch for event in one.events if isinstance(event, ChangeDone))
    some(3, one)
    one.run_until(one.remove("odd"))
    end = [event.epoch for event in one.events if isinstance(event, ChangeDone)][-1]
    some(2, one)
    results = one.rows()
    sums = {}
    for epoch, records in enumerate(one.history):
        for _, key, value in records:
            if not begin <= epoch < end or value % 2:
                sums[key] = sums.get(key, 0) + value
                assert (epoch, key) in results
        for _, key, _ in records:
            if (epoch, key) in results and not begin <= epoch < end:
                assert results[epoch, key][1] == sums[key]


def test_a_change_of_shape_that_failed_half_way_is_repaired(query):
    one = query(seed=2)
    some(3, one)
    one.epoch(values=100_000, records=1)  # of a key in none of the bins that it is tried on

    def half(value):
        if value > 1000:
            raise ValueError("too much")
        return to_fields(value)

    broken = one.run_until(one.replace(Fields("second"), migrate=half, budget_bytes=1))
    assert "too much" in broken["why"]
    there = one.pipeline()[1]["bins"]
    assert 0 < there < 16
    other = one.run_until(one.insert(Filter("all", lambda row: True, ("value",))))
    assert "replace it again, with repairs=1" in other["why"]
    with pytest.raises(UsageError, match="give the repaired `migrate`"):
        one.replace(Fields("third"), repairs=1)
    with pytest.raises(UsageError, match="Version 2 is none at which bins had to stay"):
        one.replace(Fields("third"), migrate=to_fields, repairs=2)
    with pytest.warns(FutureWarning, match="repairs"):
        again = one.replace(Fields("third"), migrate=to_fields, budget_bytes=1, mends=1)
    assert one.run_until(again)["state"] == "done"
    one.restart()
    some(2, one)
    one.check()
    assert one.pipeline()[-1]["bins"] == 16


def test_a_repair_that_fails_as_well_leaves_bins_at_the_version_that_it_was_to_repair(query):
    one = query(seed=2)
    some(3, one)
    one.epoch(values=100_000, records=1)
    half = lambda value: 1 / 0 if value > 1000 else to_fields(value)  # noqa: E731
    assert one.run_until(one.replace(Fields("second"), migrate=half, budget_bytes=1))["state"] == "refused"
    repair = one.replace(Fields("third", bad=[99]), migrate=to_fields, repairs=1, lazy=True)
    while one.change(repair)["state"] not in {"done", "switch"}:
        one.epoch(records=1)
    one.epoch(pairs=[(8, 99), *((key, 1) for key in range(KEYS))])
    assert one.run_until(repair)["state"] == "refused"
    one.restart()
    some(3, one)
    one.check()


def test_a_function_is_replaced(query):
    one = query(steps=[Map("scale", lambda row: {"value": row["value"]}, ("value",))])
    some(2, one)
    one.run_until(one.replace(Map("scale", lambda row: {"value": 10 * row["value"]}, ("value",))))
    since = one.events[-1].epoch
    some(2, one)
    one.check(lambda epoch, _bin, value: 10 * value if epoch >= since else value)


@pytest.mark.parametrize("lazy", [False, True])
def test_state_takes_another_shape_while_bins_move_and_a_worker_is_lost(query, lazy):
    one = query()
    some(4, one)
    change = one.replace(Fields("second"), migrate=to_fields, lazy=lazy, budget_bytes=200)
    one.rescale(4)
    for _ in range(4):
        one.epoch()
        one.lose(1)
    one.restart()
    assert one.run_until(change)["state"] == "done"
    one.lose(0)
    some(3, one)
    one.check()
    assert all(names in (["first", "second"], ["second"]) for names in one.names().values())


def test_a_shape_can_be_left_again(query):
    one = query()
    some(2, one)
    one.run_until(one.replace(Fields("second"), migrate=to_fields))
    some(2, one)
    one.run_until(one.replace(Tally("third"), migrate=from_fields))
    some(2, one)
    one.check()


def test_code_that_fails_on_its_first_records_is_refused_and_nothing_is_lost(query):
    one = query()
    some(2, one)
    found = one.run_until(one.replace(Tally("second", bad=range(10))))
    assert found["state"] == "refused"
    assert "Version 1 has failed: ValueError: value" in found["why"]
    some(2, one)
    one.check()
    assert set(map(tuple, one.names().values())) == {("first",)}


@pytest.mark.parametrize("back", [None, from_fields])
def test_code_that_fails_later_is_taken_back(query, back):
    """In the epochs after it has come to hold a value comes on which it fails."""
    one = query()
    some(2, one)
    change = one.replace(Tally("second", bad=[99]))
    one.run_until(change)
    one.epoch(values=100, records=800)
    some(3, one)
    assert one.change(change)["state"] == "refused"
    assert one.events[-1].rolled_back
    one.check()
    change = one.replace(Fields("third", bad=[99]), migrate=to_fields, back=back)
    one.run_until(change)
    if back is None:  # bins whose state has changed cannot go back
        with pytest.raises(StateError, match="Version 2 has failed: ValueError: value 99"):
            one.epoch(values=100, records=800)
        return
    one.epoch(values=100, records=800)
    assert one.run_until(change)["state"] == "refused"
    some(2, one)
    one.check()
    assert one.required[one.epochs - 1]["versions"]["required"] == 0


def test_a_migrate_that_raises_names_key_and_bin(query):
    one = query()
    some(2, one)
    found = one.run_until(one.replace(Fields("second"), migrate=lambda _value: 1 / 0))
    assert found["state"] == "refused"
    assert "migrate of version 1 on key b'key" in found["why"]
    assert "in bin" in found["why"]
    some(1, one)
    one.check()


def test_changes_survive_a_restart_at_any_point(query):
    one = query()
    change = one.replace(Fields("second"), migrate=to_fields, budget_bytes=1)
    for _ in range(40):
        one.epoch()
        one.restart()
    assert one.change(change)["state"] == "done"
    one.check()


def test_two_changes_at_once_come_one_after_the_other(query):
    one = query()
    some(2, one)
    one.replace(Tally("second"))
    last = one.replace(Fields("third"), migrate=to_fields)
    assert one.run_until(last)["state"] == "done"
    one.check()


def steps_at_the_end(one):
    return one.pipeline()[-1]["steps"]


def test_steps_that_two_threads_put_in_at_once_are_both_there(query):
    one = query()
    some(1, one)
    both = threading.Barrier(2, timeout=5)
    pickled = one.changes.pickled

    def slow(contents):
        with suppress(threading.BrokenBarrierError):  # broken where the two come one after the other
            both.wait(0.2)
        return pickled(contents)

    one.changes = replace(one.changes, pickled=slow)
    steps = [Filter(name, bool, ("value",)) for name in ("mask", "drop")]
    threads = [threading.Thread(target=one.insert, args=(step,)) for step in steps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(steps_at_the_end(one)) == ["drop", "mask"]


def test_a_change_whose_base_is_refused_while_it_is_made_is_made_from_what_is_left(query):
    one = query()
    some(1, one)
    refused = one.insert(Filter("broken", lambda row: 1 / 0, ("value",)))
    pickled = one.changes.pickled

    def slow(contents):
        while one.change(refused)["state"] != "refused":
            one.epoch()
        return pickled(contents)

    one.changes = replace(one.changes, pickled=slow)
    found = one.run_until(one.insert(Filter("all", lambda row: True, ("value",))))
    assert (found["state"], steps_at_the_end(one)) == ("done", ["all"])
    one.check()


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("at_once", [False, True])
def test_a_bin_on_whose_state_the_way_back_fails_keeps_the_new_version_and_can_be_repaired(query, lazy, at_once):
    """Its records are applied in the epoch in which the others go back (`at_once`) and in all that follow."""
    one = query()
    some(2, one)
    one.epoch(pairs=[(key, 5000 if key == 7 else 1) for key in range(KEYS)])

    def not_large(value):
        return from_fields(value) if value["sum"] < 1000 else 1 / 0

    how = {"lazy": lazy, "budget_bytes": 300}
    change = one.replace(Fields("second", bad=[99]), migrate=to_fields, back=not_large, **how)
    assert one.run_until(change)["state"] == "done"
    one.epoch(pairs=[(3, 99), *([(7, 1)] if at_once else [])])
    found = one.run_until(change)
    assert found["state"] == "refused"
    assert "value 99 is bad; bin" in found["why"]
    assert "had to stay at version 1 (1 of 16 bins): replace it again, with repairs=1" in found["why"]
    one.epoch(pairs=[(key, 2) for key in range(KEYS)])
    one.restart()
    some(2, one)
    one.check()
    assert [entry["bins"] for entry in one.pipeline()] == [15, 1]
    assert one.run_until(one.replace(Fields("third"), migrate=to_fields, repairs=1))["state"] == "done"
    some(2, one)
    one.check()


@pytest.mark.parametrize(("wrong", "sentence"), [
    (lambda q: q.replace(DenseCount(5)), "DenseCount cannot replace Tally"),
    (lambda q: q.remove("nothing"), "The pipeline has no step 'nothing'; it has none."),
    (lambda q: q.insert(Filter("a", bool), before="b"), "The pipeline has no step 'b'"),
    (lambda q: q.insert(Filter("a", bool, ("color",))), "reads the column 'color', but the query keeps value"),
    (lambda q: q.replace(Tally(), budget_bytes=0), "The budget must be at least 1 byte, not 0."),
    (lambda q: q.replace(Tally(threading.Lock())), "cannot be sent to the workers"),
    (lambda q: q.change("x"), "There is no change x."),
])  # fmt: skip
def test_what_cannot_be_done_is_refused_with_a_sentence(query, wrong, sentence):
    one = query()
    some(1, one)
    with pytest.raises(UsageError, match=sentence.replace("(", r"\(")):
        wrong(one)
    some(1, one)
    one.check()


@pytest.mark.parametrize("late", [False, True])
def test_a_sum_that_no_longer_fits_its_type_behind_a_new_step_refuses_the_step(query, late):
    """In its trial, or when it holds already: the other records count, and the query goes on."""
    one = query(Aggregate({"partition": "int"}, {"s": "sum(value)"}, {"value": "bigint"}))
    some(2, one)
    large = 99 if late else 0
    step = Map("scale", lambda row: {"value": 2**63 - 1 if row["value"] >= large else row["value"]}, ("value",))
    change = one.insert(step)
    if late:
        assert one.run_until(change)["state"] == "done"
        one.epoch(values=100, records=800)
    found = one.run_until(change)
    assert found["state"] == "refused"
    assert "OperatorError: A sum is beyond 64 bits" in found["why"]
    some(2, one)
    sums = Counter()
    for epoch, records in enumerate(one.history):
        for _, key, value in records:
            sums[key] += value
        for key in {key for _, key, _ in records}:
            assert one.rows()[epoch, key]["s"] == sums[key]


def test_operators_without_entries_have_no_values_to_turn(query):
    one = query(DenseCount(100))
    with pytest.raises(UsageError, match="DenseCount has no entries"):
        one.replace(DenseCount(100, cost_us=1), migrate=to_fields)
    with pytest.raises(UsageError, match="HashCount cannot replace DenseCount"):
        one.replace(HashCount())


def test_a_refused_change_is_an_event_with_its_reason(query):
    one = query()
    some(1, one)
    one.run_until(one.replace(Tally("second", bad=range(10))))
    event = one.events[-1]
    assert isinstance(event, ChangeRefused)
    assert event.to_json()["kind"] == "change_refused"
