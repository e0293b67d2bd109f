"""Each query on events made by hand: what its dialect says where implementations of NEXMark disagree."""

import inspect
import json

import pytest
from auctions import SECOND, answers, auction, bid, person, rows
from memory import RESULTS
from timed import TimedRun, close_all

from impls.errors import UsageError
from impls.operators import nexmark
from impls.operators.nexmark import QUERIES, make


@pytest.fixture(autouse=True)
def closed():
    yield
    close_all()


@pytest.fixture
def ask(tmp_path):
    """Runs a query and returns its results, one list per call."""

    def run(name, events, cuts=(), **options):
        return answers(tmp_path, name, events, cuts, **options).results()

    return run


def test_q0_passes_events_on_as_they_came(tmp_path, ask):
    events = [{**e, "value": json.dumps(e).encode()} for e in (person(1, 0), auction(7, 1, 9), bid(7, 2, 5))]
    assert ask("q0", events, flush=False) == [{k: v for k, v in e.items() if k != "value"} for e in events]
    assert [value for *_, value in RESULTS[str(tmp_path)]] == [e["value"] for e in events]


def test_q1_converts_with_whole_cents_rounded_down(ask):
    found = ask("q1", [bid(7, 3, 100, bidder=4), bid(8, 3, 199), person(1, 0)], flush=False)
    assert found == [
        {"auction": 7, "bidder": 4, "price": 89, "dateTime": 3},
        {"auction": 8, "bidder": 1, "price": 177, "dateTime": 3},  # 177.11; by 0.908 it would be 180.692
    ]


def test_q2_selects_multiples_of_123_and_not_the_five_of_the_draft(ask):
    found = ask("q2", [bid(123, 0, 5), bid(1007, 0, 6), bid(1230, 0, 7), bid(2001, 0, 8)], flush=False)
    assert found == [{"auction": 123, "price": 5}, {"auction": 1230, "price": 7}]


def test_q10_names_day_and_minute_of_a_bid(ask):
    (found,) = ask("q10", [bid(7, 90_061_000, 5)], flush=False)
    assert (found["day"], found["minute"]) == ("1970-01-02", "01:01")


def test_q13_joins_a_bounded_table_by_the_auction_modulo_its_size(ask):
    assert [row["value"] for row in ask("q13", [bid(10_007, 0, 5), bid(7, 0, 6)], flush=False)] == ["7", "7"]


@pytest.mark.parametrize(
    ("hour", "time"), [(6, "night"), (7, "other"), (8, "day"), (18, "day"), (19, "other"), (20, "night")]
)
def test_q14_gives_exact_euros_time_of_day_and_letters_of_dear_bids(ask, hour, time):
    at = hour * 3600 * SECOND
    found = ask("q14", [bid(7, at, 1_101_321, bidder=2), bid(7, at, 1_101_322, bidder=2)], flush=False)
    assert [(row["price"], row["time"], row["letters"]) for row in found] == [("1000000.376", time, 2)]


def test_q21_knows_four_channels_and_reads_the_others_from_the_url(ask):
    found = ask("q21", [bid(7, 0, 0, 0), bid(7, 0, 1, 0), bid(7, 0, 2, 0)], flush=False)
    assert [(row["channel"], row["id"]) for row in found] == [("Apple", "0"), ("channel-1", "7")]


def test_q22_gives_three_directories(ask):
    (found,) = ask("q22", [bid(7, 0, 0, 4)], flush=False)
    assert (found["first"], found["second"], found["third"]) == ("a4", "b", "c")


def test_q11_begins_a_session_when_a_bidder_made_no_bid_for_ten_seconds(ask):
    times = (0, 9_999, 19_999, 21_000)
    found = ask("q11", [bid(7, time, 5, bidder=3) for time in times], cuts=[1, 2, 3])
    assert [(row["start"], row["end"], row["bids"]) for row in found] == [(0, 19_999, 2), (19_999, 31_000, 2)]


def test_q11_a_bid_between_two_sessions_joins_them(ask):
    found = ask("q11", [bid(7, time, 5, bidder=3) for time in (0, 15_000, 8_000)])
    assert [(row["start"], row["end"], row["bids"]) for row in found] == [(0, 25_000, 3)]


def test_q12_counts_each_bid_in_the_window_in_which_its_epoch_was_planned(tmp_path):
    run, now = TimedRun(tmp_path, make("q12", partitions=1), mechanism="none"), [3_000]
    run.driver.now_ms = lambda: now[0]
    run.epoch(rows("q12", [bid(7, 0, 1, bidder=3), bid(8, 99_999, 1, bidder=3), bid(7, 0, 1, bidder=4)]))
    now[0] = 12_000
    run.epoch(rows("q12", [bid(7, 5, 1, bidder=3)]))
    now[0] = 20_000
    run.epoch()
    found = sorted((row["bidder"], row["start"], row["end"], row["bids"]) for row in run.results())
    assert found == [(3, 0, 10_000, 2), (3, 10_000, 20_000, 1), (4, 0, 10_000, 1)]


def test_q19_ranks_equal_prices_by_time_and_keeps_ten(ask):
    found = ask("q19", [bid(7, time, time // 5 % 2, bidder=1) for time in range(12)])
    assert [(row["rank"], row["price"], row["dateTime"]) for row in found[:6]] == [
        (1, 1, 5), (2, 1, 6), (3, 1, 7), (4, 1, 8), (5, 1, 9), (6, 0, 0),
    ]  # fmt: skip
    assert len(found) == 10


def test_q20_does_not_let_bids_on_another_category_wait(tmp_path):
    run = answers(tmp_path, "q20", [auction(1, 0, 9, category=11), bid(1, 1, 5), auction(2, 2, 9), bid(2, 3, 6)])
    assert [(row["auction"], row["price"]) for row in run.results()] == [(2, 6)]


def test_q3_joins_every_auction_of_a_seller_whichever_comes_first(ask):
    events = [auction(1, 0, 9, seller=5), auction(2, 1, 9, seller=5), person(5, 2), auction(3, 3, 9, seller=5)]
    assert [r["auction"] for r in ask("q3", events, cuts=[1, 3])] == [1, 2, 3]


def test_q3_keeps_persons_beyond_beams_600_seconds(ask):
    events = [person(5, 0, "ID", "Ann"), auction(1, 601 * SECOND, 700 * SECOND, seller=5)]
    assert ask("q3", events, cuts=[1]) == [{"name": "Ann", "city": "Boise", "state": "ID", "auction": 1}]


def test_q3_wants_category_10_and_three_states(ask):
    events = [person(5, 0, "WA"), auction(1, 1, 9, seller=5), person(6, 2, "CA")]
    events += [auction(2, 3, 9, seller=6, category=11), auction(3, 3, 9, seller=6)]
    assert [r["auction"] for r in ask("q3", events)] == [3]


def q4_prices(found):
    return sorted((r["start"], r["category"], r["price"]) for r in found)


def test_q4_answers_at_the_close_and_with_the_winning_bid_only(ask):
    events = [auction(1, 0, 3 * SECOND, reserve=10), bid(1, 1, 9), bid(1, 2, 50), bid(1, 2, 30)]
    assert q4_prices(ask("q4", events, cuts=[2])) == [(-5 * SECOND, 10, 50), (0, 10, 50)]


@pytest.mark.parametrize(
    ("time", "counts"), [(4_999, False), (5_000, True), (7_999, True), (8_000, False)], ids=["early", "at", "in", "end"]
)
def test_q4_an_auction_takes_bids_from_its_opening_to_before_its_end(ask, time, counts):
    events = sorted([auction(1, 5_000, 8_000), bid(1, 6_000, 1), bid(1, time, 9)], key=lambda e: e["dateTime"])
    assert {price for _, _, price in q4_prices(ask("q4", events))} == {9 if counts else 1}


def test_q4_a_bid_may_come_before_its_auction_if_it_was_made_after_the_opening(ask):
    events = [bid(1, 5_000, 9), auction(1, 5_000, 8_000)]
    assert {price for _, _, price in q4_prices(ask("q4", events, cuts=[1]))} == {9}


def test_q4_a_bid_below_the_reserve_wins_nothing_and_one_at_it_does(ask):
    events = [auction(1, 0, 3_000, reserve=10), bid(1, 1, 9), auction(2, 0, 3_000, reserve=10, category=11)]
    assert q4_prices(ask("q4", [*events, bid(2, 1, 10)])) == [(-5_000, 11, 10), (0, 11, 10)]


def test_q4_windows_are_half_open_and_a_closing_lies_in_two(ask):
    events = [auction(1, 0, 10_000), auction(2, 0, 9_999, category=11), bid(1, 1, 4), bid(2, 1, 6)]
    assert q4_prices(ask("q4", events)) == [(0, 11, 6), (5_000, 10, 4), (5_000, 11, 6), (10_000, 10, 4)]


def test_q4_means_are_rounded_half_up_over_all_bins(ask):
    events = [auction(n, 0, 3_000) for n in range(4)] + [bid(n, 1, price) for n, price in enumerate([1, 2, 2, 1])]
    assert {price for _, _, price in q4_prices(ask("q4", events))} == {2}  # 1.5


def test_q5_names_all_auctions_with_most_bids_over_all_bins(ask):
    events = [bid(n, 1_000 * i, 1) for i in range(3) for n in (1, 2, 3)] + [bid(4, 2_900, 1)]
    found = [r for r in ask("q5", events) if r["start"] == 0]
    assert sorted((r["auction"], r["bids"]) for r in found) == [(1, 3), (2, 3), (3, 3)]


def test_q5_windows_are_half_open_and_slide_by_five_seconds(ask):
    events = [bid(1, 4_999, 1), bid(2, 5_000, 1), bid(3, 10_000, 1), bid(2, 10_001, 1)]
    found = sorted((r["start"], r["auction"], r["bids"]) for r in ask("q5", events, cuts=[1, 2, 3]))
    assert found == [(-5_000, 1, 1), (0, 1, 1), (0, 2, 1), (5_000, 2, 2), (10_000, 2, 1), (10_000, 3, 1)]


def test_q6_is_keyed_by_seller_and_takes_ten_auctions(ask):
    events = [auction(n, 0, 1_000 + n, seller=9) for n in range(12)]
    events += [bid(n, 1, 100 if n == 0 else 10, bidder=n) for n in range(12)]
    found = ask("q6", events)
    assert [r["seller"] for r in found] == [9] * 12
    assert [r["price"] for r in found] == [100, 55, 40, 33, 28, 25, 23, 21, 20, 19, 10, 10]


def test_q6_auctions_closed_at_one_time_come_by_their_id(ask):
    events = [auction(n, 0, 1_000, seller=9) for n in (10, 9, 100)] + [bid(n, 1, n) for n in (10, 9, 100)]
    assert [(r["auction"], r["price"]) for r in ask("q6", events)] == [(9, 9), (10, 10), (100, 40)]


def test_q7_gives_every_bid_of_the_highest_price_whole(ask):
    events = [bid(1, 10_000, 5, 7), bid(2, 12_000, 9, 8), bid(2, 12_000, 9, 8), bid(3, 19_999, 9, 6)]
    events += [bid(3, 20_000, 9, 6)]
    found = sorted(tuple(r[name] for name in QUERIES["q7"].fields) for r in ask("q7", events))
    twice = (10_000, 2, 8, 9, 12_000)
    assert found == [twice, twice, (10_000, 3, 6, 9, 19_999), (20_000, 3, 6, 9, 20_000)]


def test_q8_reads_persons_and_wants_the_same_aligned_window(ask):
    events = [
        person(5, 9_999, name="Ann"), auction(1, 9_999, 10_500, seller=5, reserve=3),
        auction(2, 10_000, 10_500, seller=5), auction(3, 10_000, 10_500, seller=6), person(6, 10_001),
        auction(4, 19_999, 20_500, seller=6),
    ]  # fmt: skip
    found = sorted((r["start"], r["id"], r["name"], r["auction"], r["reserve"]) for r in ask("q8", events, cuts=[1, 4]))
    assert found == [(0, 5, "Ann", 1, 3), (10_000, 6, "p6", 3, 0), (10_000, 6, "p6", 4, 0)]


@pytest.mark.parametrize("name", ["q4", "q5", "q6", "q7", "q8"])
def test_state_of_what_is_over_is_gone(tmp_path, name):
    events = [person(1, 0)] + [auction(n, n, 2_000 + n, seller=1) for n in range(50)]
    events += [bid(n, 100 + n, n) for n in range(60)] + [bid(1, 9_000, 1)]
    run = answers(tmp_path, name, events)
    kept = 160 if name == "q6" else 120  # the last events, and of Q6 a seller's last prices
    assert run.size < kept


@pytest.mark.parametrize("name", QUERIES)
def test_every_query_says_its_dialect_and_is_short(name):
    query, operator = QUERIES[name], make(name)
    assert query.dialect in {"beam", "flink-sql", "megaphone"}
    assert f'Dialect "{query.dialect}"' in (query.__doc__ or "")
    assert len(inspect.getsource(query).splitlines()) < 80
    assert set(query.where) <= set(query.keys)
    assert operator.event_time is None or operator.event_time.column in operator.columns


def test_an_unknown_query_is_named():
    with pytest.raises(UsageError, match="no NEXMark query 'q23'"):
        nexmark.make("q23")
