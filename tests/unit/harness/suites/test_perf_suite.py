"""The performance suite's decisions and figures: what to try next, intervals, checks, pages."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.files import read_json, write_json
from harness.suites.options import PERF
from harness.suites.perf import part_names
from harness.suites.perf.intervals import ConfidenceInterval, interval, quotient
from harness.suites.perf.part import Check, PartResult, Spread, Table
from harness.suites.perf.phases import LINES, EpochPhases, account, shares
from harness.suites.perf.rate import RateProbe, Search, least_ratio, rate_ratio
from harness.suites.perf.restart import excess_ms
from harness.suites.perf.suite import markdown, run_perf, suite_from, write_reference, write_tables
from harness.suites.perf.twin.process import EpochMark, TurnBlock, blocks_of, ratios
from harness.suites.perf.twin.query import TurnEpoch, side_of
from impls.errors import UsageError
from impls.worker.cells import make_cells

HERE = {"commit": "c" * 40, "dirty": False, "cores": 2, "versions": {"python": "3.11.2"}}


@pytest.mark.capability
@given(st.integers(2_000, 150_000), st.sampled_from([20_000, 40_000, 100_000]))
def test_a_search_ends_with_a_bracket_around_the_limit(limit, start):
    search, tried = Search(start), []
    while search.rate is not None:
        assert len(tried) < 20
        tried.append(search.rate)
        search.tell(holds=search.rate <= limit)
    assert search.low <= limit < search.high
    assert search.high / search.low <= 1.1 or search.high - search.low <= 1_000
    assert len(set(tried)) == len(tried)


def test_a_search_gives_up_at_the_highest_and_at_the_lowest_rate_it_may_try():
    for holds, end in ((True, (8_000, None)), (False, (None, 2_000))):
        search = Search(4_000, least=2_000, most=8_000)
        while search.rate is not None:
            search.tell(holds=holds)
        assert (search.low, search.high) == end
        with pytest.raises(ValueError, match="over"):
            search.tell(holds=True)


def test_a_side_that_held_no_rate_still_gives_a_ratio():
    def found(limit):
        search = Search(4_000, least=2_000, most=8_000)
        while search.rate is not None:
            search.tell(holds=search.rate <= limit)
        return search

    assert rate_ratio(found(9_000), found(4_000)) >= 8_000 / 5_000
    assert rate_ratio(found(9_000), found(0)) == 8_000 / 2_000
    fast, slow = found(9_000), found(4_000)
    assert fast.low / slow.high == least_ratio(fast, slow) < rate_ratio(fast, slow), "its limit lies in between"
    assert rate_ratio(found(0), found(9_000)) == rate_ratio(found(0), found(0)) == 0


def test_a_rate_holds_only_below_the_limit_and_without_a_growing_backlog():
    assert RateProbe(1, 999.0, 0.0).holds
    assert not RateProbe(1, 1_001.0, 0.0).holds
    assert not RateProbe(1, 500.0, 0.03).holds


def test_the_interval_of_a_median_covers_it_as_often_as_it_says():
    random = np.random.default_rng(7)
    for n in (6, 10, 12, 25):
        found = [interval(random.exponential(size=n).tolist()) for _ in range(2_000)]
        inside = np.mean([one.low <= np.log(2) <= one.high for one in found])
        assert inside > 0.94
    assert interval([3.0, 1.0, 2.0]) == interval([1.0, 2.0, 3.0])


def block(side, pair, cpu):
    return TurnBlock(side, pair, False, 5, 100, 100.0, 150.0, cpu, 0.0, 0.0)


def test_ratios_are_those_of_blocks_of_one_pair():
    blocks = [block("live", 0, 4.0), block("twin", 0, 2.0), block("twin", 1, 5.0), block("live", 2, 1.0)]
    assert ratios(blocks, "cpu_ms") == [2.0]


def test_blocks_take_turns_so_that_a_trend_favours_no_side():
    sides = [side_of(number) for number in range(400)]
    assert sides.count("live") == sides.count("twin") == 200
    places = {side: np.mean([i for i, s in enumerate(sides) if s == side]) for side in ("live", "twin")}
    assert places["live"] == places["twin"]


def test_a_block_is_measured_from_the_end_of_its_first_epoch():
    def mark(block, second, records):
        cells, _ = make_cells(np.zeros(records, np.int64), 1_000_000, np.zeros(records, bool))
        return EpochMark(TurnEpoch("live", block, records, cells), second, second * 2, second * 3, second * 4)

    marks = [mark(None, 0, 9), mark(0, 10, 7), mark(0, 11, 3), mark(0, 12, 3), mark(1, 13, 5)]
    (found,) = blocks_of(marks, backlog=True)
    assert found.backlog
    assert (found.epochs, found.records, found.epoch_ms) == (2, 6, 1_000)
    assert (found.step_cpu_ms, found.plan_cpu_ms, found.jvm_cpu_ms, found.cpu_ms) == (2_000, 3_000, 4_000, 5_000)


def test_excess_latency_is_at_least_the_spread_of_the_steady_part():
    line = [{"tag": "steady", "max": 10.0}, {"tag": "steady", "max": 30.0}, {"tag": "migrating", "max": 500.0}]
    entry = {"timeline": line, "migrations": [{"peak_ms": 35.0}], "latency_ms": {"steady": {"p99": 28.0}}}
    assert excess_ms(entry) == 20.0
    entry["migrations"][0]["peak_ms"] = 500.0
    assert excess_ms(entry) == 472.0


def test_a_spread_shows_its_range_only_where_there_is_one():
    assert Spread((1500.0,)).text() == "1,500"
    assert Spread((1.0, 2.0, 9.0)).text(1) == "2.0 (1.0 to 9.0)"


def test_a_bound_is_held_by_the_end_of_the_interval_that_is_nearer_to_breaking_it():
    few, many = (1.0, 1.1, 1.3), [*[1.0] * 10, 9.0]
    assert [Check.of("c", few, bound, at_most=True).holds for bound in (1.2, 1.3)] == [False, True]
    assert [Check.of("c", few, bound, at_most=False).holds for bound in (1.0, 1.05)] == [True, False]
    assert Check.of("c", many, 1.0, at_most=True).holds, "one of eleven is outside of the interval"
    assert (Check.of("c", few, 1.2, at_most=True).value, Check.of("c", few, 1.2, at_most=True).edge) == (1.1, 1.3)
    assert quotient((90.0, 100.0, 120.0), (1.0, 2.0, 3.0)) == ConfidenceInterval(50.0, 30.0, 120.0, 3)
    assert quotient((0.0, 100.0, 120.0), (0.0, 2.0, 3.0)) == ConfidenceInterval(50.0, 0.0, math.inf, 3)


def test_what_is_over_nothing_is_written_and_not_kept(tmp_path):
    without_end = Check.of("peak", (1.2, math.inf, 1.1), 1.5, at_most=True)
    write_json(tmp_path / "found.json", PartResult([], [without_end]).to_json())
    [stored] = read_json(tmp_path / "found.json")["checks"]
    assert (stored["value"], stored["edge"], stored["unbounded"], stored["holds"]) == (1.2, None, True, False)


def test_a_limit_that_was_not_found_shows_no_ratio():
    fast, never = Search(1_000, 8_000), Search(1_000, 8_000)
    for search in (fast, never):
        while search.rate is not None:
            search.tell(holds=True)
    assert (never.high, least_ratio(fast, never)) == (None, 0.0)


def findings():
    curves = {"restart": {"native-repartition": [[1e6, 8000.0]], "megaphone-fluid": [[1e6, 40.0]]}}
    checks = [Check("a", 0.5, 0.85, at_most=True), Check("b", 1.7, 1.5, at_most=False, edge=1.2)]
    return PartResult([Table("T", ("x", "y"), [["1", "2"]], "a note")], checks, curves)


def test_the_page_says_which_bounds_are_kept_and_shows_every_table(tmp_path):
    result = {"environment": HERE, "quick": True, "parts": {"restart": {"title": "R", **findings().to_json()}}}
    result = json.loads(json.dumps(result))
    write_tables(tmp_path, result)
    page = (tmp_path / "perf.md").read_text()
    assert "| a: at most 0.85 | 0.5 | yes | cccccccccccc |" in page
    assert "| b: at least 1.5 | 1.7 (down to 1.2) | **no** | cccccccccccc |" in page
    assert "| x | y |\n|---|---:|\n| 1 | 2 |" in page
    assert "quick form" in page
    assert "(figures/restart-restart.svg)" in page
    assert (tmp_path / "figures" / "restart-restart.svg").stat().st_size > 1_000
    assert "figures/" not in markdown(result)


def test_a_part_measured_anew_leaves_the_others_of_the_reference_as_they_are(tmp_path):
    old = {"restart": {"title": "R", **findings().to_json()}, "steady": {"title": "S", **findings().to_json()}}
    write_reference({"environment": {**HERE, "host": "h"}, "quick": False, "parts": old}, tmp_path)
    check = Check("n", 0.5, 0.85, at_most=True)
    new = {"steady": {"title": "S", **PartResult([Table("T", ("x",), [["9"]])], [check]).to_json()}}
    write_reference({"environment": {**HERE, "commit": "d" * 40}, "quick": False, "parts": new}, tmp_path)
    stored, page = json.loads((tmp_path / "perf.json").read_text()), (tmp_path / "README.md").read_text()
    assert list(stored["parts"]) == ["restart", "steady"]
    assert [part["environment"]["commit"][0] for part in stored["parts"].values()] == ["c", "d"]
    assert stored["parts"]["steady"]["tables"][0]["rows"] == [["9"]]
    assert page.index("## R\n\nMeasured at commit cccccccccccc") < page.index("## S\n\nMeasured at commit dddddddddddd")
    assert "| **no** | cccccccccccc |\n| n: at most 0.85 | 0.5 | yes | dddddddddddd |" in page
    assert "host" not in json.dumps(stored)
    assert [path.name for path in (tmp_path / "figures").iterdir()] == ["restart-restart.svg"]


def test_parts_are_chosen_by_name_in_their_own_order():
    assert suite_from({}).parts == tuple(part_names())
    assert PERF[0].help.partition(": ")[2] == ", ".join(part_names())
    assert all(part.minutes > 0 for part in suite_from({}).chosen.values())
    assert suite_from({"part": "restart, steady", "quick": True}).parts == ("restart", "steady")
    with pytest.raises(UsageError, match="'speed' is unknown: use one of durability"):
        suite_from({"part": "speed"})
    assert suite_from({"part": "steady", "quick": True}).digest() != suite_from({"part": "steady"}).digest()


@pytest.mark.lengthy
def test_a_part_without_a_run_is_measured_and_shown(tmp_path, capsys):
    assert run_perf({"part": "recovery", "quick": True, "output": str(tmp_path)}) == 0
    page, told = capsys.readouterr()
    assert "| recovery of a worker of 20,000 dense keys, s: at most 2 |" in page
    assert "part 1 of 1: Recovery" in told


def test_the_account_of_an_epoch_does_not_overlap_and_leaves_little_out():
    spark = {"latestOffset": 5, "walCommit": 8, "getBatch": 0, "queryPlanning": 2, "addBatch": 110, "commitOffsets": 9}
    driver = {"between": 40.0, "plan": 1.0, "build": 20.0, "job": 80.0, "observe": 3.0}
    workers = {"open": 1.0, "pull": 0.5, "apply": 6.0, "commit": 2.0, "log": 1.0, "send": 4.0, "snapshot": 0.5}
    job = {"before": 15.0, "first": 20.0, "second": 40.0, "behind": 5.0}
    epoch = EpochPhases(144.0, spark, driver, workers, job)
    lines = account(epoch)
    assert list(lines) == list(LINES)
    assert all(value >= 0 for value in lines.values())
    assert lines["hand-shake and Arrow"] == 25.0
    assert lines["call into Python"] == 6.0
    assert sum(lines.values()) == 144.0
    means, share = shares([epoch, epoch])
    assert means == lines
    assert share == 1.0
