"""The oracle's SQL against answers worked out in Python, and against results that are lost, doubled or wrong."""

from collections import Counter

import duckdb
import numpy as np
import pytest
from auctions import FROM_SCRATCH, ends, random_events
from hypothesis import given, settings
from hypothesis import strategies as st
from judging import judged, ranges, results, topic

from harness.oracle.columns import MovedBins, hash_bins
from harness.oracle.nexmark import run
from harness.oracle.nexmark.check import Rules, check, latencies_of
from harness.oracle.nexmark.queries import DEFINITIONS
from impls.operators.nexmark import QUERIES
from impls.operators.nexmark.base import BID


def case(name, seed, number=200):
    events = random_events(seed, number)
    return [*events, *ends(name), *ends(name)], FROM_SCRATCH[name](events)


@settings(max_examples=15, deadline=None)
@given(st.sampled_from(sorted(FROM_SCRATCH)), st.integers(0, 10_000))
def test_sql_and_python_agree(name, seed):
    events, answers = case(name, seed, 120)
    found, _ = judged(name, events, results(answers))
    assert found.totals == dict.fromkeys(found.totals, 0), found.examples
    assert (found.records, found.results) == (len(events), len(answers))


def test_stateless_queries_are_checked_too():
    events = [dict(e, auction=e["auction"] * 123) if e["kind"] == 2 and i % 3 else e
              for i, e in enumerate(random_events(1, 90))]  # fmt: skip
    bids = [e for e in events if e["kind"] == 2]
    answers = {
        "q0": topic(events).value.tolist(),
        "q1": [{n: b[n] for n in ("auction", "bidder", "dateTime")} | {"price": b["price"] * 89 // 100} for b in bids],
        "q2": [{"auction": b["auction"], "price": b["price"]} for b in bids if b["auction"] % 123 == 0],
    }
    for name, given_ in answers.items():
        assert judged(name, events, results(given_))[0].clean
        assert judged(name, events, results(given_[1:]))[0].totals["lost"] == 1


@pytest.mark.parametrize("name", sorted(FROM_SCRATCH))
def test_what_is_lost_doubled_or_wrong_is_found(name):
    events, answers = case(name, 3)
    assert judged(name, events, results(answers[1:]))[0].totals["lost"] == 1
    assert judged(name, events, results([*answers, answers[-1]]))[0].totals["doubled"] == 1
    field = next(f for f, kind in DEFINITIONS[name].fields.items() if kind == "BIGINT")
    changed = [{**answers[0], field: answers[0][field] + 777_777}, *answers[1:]]
    totals = judged(name, events, results(changed))[0].totals
    assert (totals["lost"], totals["wrong"]) == (1, 1)


def test_bids_of_equal_time_are_in_one_session():
    """A sort by time alone puts them in any order, and in another one the next time."""
    db = duckdb.connect(config={"threads": 4})
    db.execute(
        'CREATE TABLE bid AS SELECT i % 7 AS bidder, (i // 7 % 50) * 100_000_000 AS "dateTime" '
        "FROM range(49_000) r(i) ORDER BY hash(i)"
    )
    sql = DEFINITIONS["q11"].sql.replace("$watermark", str(10**12))
    found = db.execute(f'SELECT bids, count(*) FROM ({sql}) s(bidder, bids, "start", "end") GROUP BY bids').fetchall()
    assert found == [(140, 350)]


def test_windows_of_processing_time_must_have_each_bid_once():
    events = random_events(3, 90)
    counts = Counter(event["bidder"] for event in events if event["kind"] == BID)
    answers = [
        {"bidder": bidder, "bids": part, "start": start, "end": start + 10_000}
        for bidder, number in counts.items() for start, part in ((0, 1), (10_000, number - 1))
    ]  # fmt: skip
    assert judged("q12", events, results(answers))[0].clean
    for wrong in (answers[1:], [*answers, answers[0]], [{**answers[0], "start": 1}, *answers[1:]]):
        assert not judged("q12", events, results(wrong))[0].clean


def test_a_repeat_is_dropped_and_one_that_differs_is_wrong():
    events, answers = case("q3", 3)
    again = [*answers, answers[0]]
    numbers = [*range(len(answers)), 0]
    found, _ = judged("q3", events, results(again, numbers=numbers))
    assert (found.clean, found.repeats) == (True, 1)
    again[-1] = {**answers[0], "auction": -1}
    found, _ = judged("q3", events, results(again, numbers=numbers))
    assert found.totals["wrong"] == 1
    assert found.examples["wrong"]["first"]["why"] == "differs from what it repeats"


@pytest.mark.parametrize("name", ["q3", "q5", "q8"])
def test_results_that_come_again_without_a_number_are_counted_as_repeats(name):
    events, answers = case(name, 3)
    found, _ = check(
        topic(events), results([*answers, *answers[:2], answers[0]]), ranges(events), query=name, bin_of=hash_bins(16),
        moves=MovedBins.of([]), rules=Rules(repeats=True),
    )  # fmt: skip
    assert (found.clean, found.results, found.repeats) == (True, len(answers), 3)


def test_a_result_of_a_window_that_is_still_open_is_wrong():
    events = random_events(3, 200)
    assert judged("q5", events, results(FROM_SCRATCH["q5"](events)))[0].totals["wrong"] > 0


def test_an_event_in_no_epoch_is_lost():
    events, answers = case("q4", 3)
    kept = ranges(events).take(np.arange(6))
    found, arrived = check(
        topic(events), results(answers), kept, query="q4", bin_of=hash_bins(16), moves=MovedBins.of([])
    )
    assert found.totals["lost"] > 10
    assert set(arrived.epoch.tolist()) == {-1, *kept.epoch.tolist()}
    assert found.examples["lost"]["last"]["why"] in {"event in no committed epoch", "result missing"}


def test_results_of_one_key_in_two_partitions_are_wrong():
    events, answers = case("q8", 3)
    found = results(answers)
    found.partition[0] = 1
    assert judged("q8", events, found)[0].totals["wrong"] >= 1


def test_only_what_the_query_reads_since_the_load_began_is_measured_and_crosses():
    events, answers = case("q3", 3)
    middle = events[100]["dateTime"]
    moves = MovedBins.of([(2, bin_, "m") for bin_ in range(16)])
    found, arrived = check(
        topic(events), results(answers), ranges(events), query="q3", bin_of=hash_bins(16), moves=moves
    )
    read = [e for e in events if (e["kind"] == 0 and e["state"] in {"OR", "ID", "CA"})
            or (e["kind"] == 1 and e["category"] == 10)]  # fmt: skip
    assert arrived.measured(middle) == sum(e["dateTime"] >= middle for e in read)
    assert 0 < found.crossed["m"] < len(read)


def completed(name, events, answer):
    """When the event was due that completes an answer: of q8 the later of two, of q5 the one that ends the window."""
    if name == "q8":
        seller = next(e for e in events if e["kind"] == 0 and e["id"] == answer["id"])
        auction = next(e for e in events if e["kind"] == 1 and e["id"] == answer["auction"])
        return max(seller["dateTime"], auction["dateTime"])
    end = answer["start"] + 10_000
    of = [[e["dateTime"] for e in events[p::2] if e["kind"] == BID and e["dateTime"] >= end] for p in range(2)]
    return max(map(min, of))


@settings(max_examples=15, deadline=None)
@given(st.sampled_from(["q5", "q8"]), st.integers(0, 10_000))
def test_a_result_is_late_by_the_event_that_completes_it(name, seed):
    events, answers = case(name, seed, 120)
    wrong = {**dict.fromkeys(DEFINITIONS[name].fields, 1), "start": -10_000}
    there = [*range(5_000_000, 5_000_000 + len(answers)), *range(6_000_000, 6_000_001 + len(answers))]
    due, at_us = latencies_of(
        topic(events), results([*answers, *answers, wrong], at_us=there), query=name, disorder=0
    )  # a repeat, and a result that is wrong, have no latency
    expected = zip((completed(name, events, answer) for answer in answers), there, strict=False)
    assert sorted(zip(due.tolist(), at_us.tolist(), strict=True)) == sorted(expected)


def test_every_query_has_a_definition_with_the_fields_of_its_results():
    assert {name: tuple(d.fields) for name, d in DEFINITIONS.items()} == {n: q.fields for n, q in QUERIES.items()}


def test_in_real_time_all_events_must_have_been_read_and_cross_by_their_schedule(monkeypatch):
    events, answers = case("q3", 3)
    late = sorted(e["dateTime"] for e in events)[150]
    moves = MovedBins.of([(late, bin_, "m") for bin_ in range(16)])
    found, arrived = check(topic(events), results(answers), None, query="q3", bin_of=hash_bins(16), moves=moves)
    assert found.clean
    assert 0 < found.crossed["m"] < len(arrived)
    short = check(topic(events), results(answers[1:]), None, query="q3", bin_of=hash_bins(16), moves=moves)[0]
    assert short.totals["lost"] == 1
    monkeypatch.setattr(run, "read_events", lambda *_, **__: topic(events))
    assert run.events_read("broker", "in", "q3") == len(arrived)
    assert run.events_read("broker", "in", "q0") == len(events)
    monkeypatch.setattr(run, "read_events", lambda *_, **__: topic([]))
    assert run.events_read("broker", "in", "q5") == 0
