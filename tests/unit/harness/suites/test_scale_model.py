"""The simulator's cost model: figures that can be worked out by hand, and how they change with its parameters."""

from dataclasses import replace

import numpy as np
import pytest
from round_costs import COSTS

from harness.suites.scale.cluster import ModelCluster
from harness.suites.scale.load import EvenLoad, Histogram, Segments, zipf_bins
from harness.suites.scale.scenario import make_scenario
from harness.suites.scale.simulate import SimulationSetting, predict
from impls import catalog
from impls.errors import UsageError
from impls.protocol.plan import EpochPlan, WrittenPlan

BIN_BYTES = 100_000


def make_setting(*, bins=8, workers=4, moves=1, bin_bytes=BIN_BYTES, costs=COSTS, **more):
    initial = (np.arange(bins) * workers // bins).astype(np.int32)
    goal = initial.copy()
    goal[:moves] = (goal[:moves] + workers // 2) % workers
    shares, sizes = np.full(bins, 1 / bins), np.full(bins, bin_bytes, np.int64)
    return SimulationSetting(initial, goal, sizes, shares, more.pop("rate", 8000.0), costs, **more)


def test_one_bin_that_moves_costs_what_arithmetic_says():
    found = predict("megaphone-all-at-once", make_setting())
    pull_ms = 100 + 2  # 100,000 bytes at 1 MB/s, and 2 ms for the bin
    assert found.longest_pull_ms == pytest.approx(pull_ms)
    assert found.steady_max_ms == pytest.approx(100 + 50)  # a whole epoch of waiting, then the response
    assert found.peak_ms == pytest.approx(100 + pull_ms + 50)
    assert found.duration_s == pytest.approx((100 + pull_ms - 10) / 1e3)
    assert (found.moved_bins, found.moved_bytes, found.epochs) == (1, BIN_BYTES, 1)


def test_without_a_migration_latency_is_steady():
    found = predict("none", make_setting())
    assert (found.peak_ms, found.duration_s, found.moved_bins) == (None, None, 0)
    assert found.steady_p50_ms == pytest.approx(50 + 100 / 2, rel=0.02)
    assert found.steady_epoch_ms == pytest.approx(100)


@pytest.mark.parametrize("name", ["megaphone-all-at-once", "megaphone-fluid", "meces", "partial-pause"])
def test_more_bandwidth_makes_a_migration_shorter_and_its_peak_lower(name):
    slow, fast = (predict(name, make_setting(moves=4, costs=replace(COSTS, pull_bytes_s=rate))) for rate in (1e6, 1e8))
    assert fast.duration_s < slow.duration_s
    assert fast.peak_ms < slow.peak_ms


def test_all_at_once_peaks_in_proportion_to_the_state():
    sizes = (100_000, 200_000, 300_000)
    peaks = [predict("megaphone-all-at-once", make_setting(moves=4, bin_bytes=size)).peak_ms for size in sizes]
    assert np.diff(peaks) == pytest.approx([200, 200])  # each new owner takes two bins, 100 ms more for each


def test_fluid_peaks_like_one_bin_however_many_move():
    one, four = (predict("megaphone-fluid", make_setting(moves=moves)) for moves in (1, 4))
    assert (one.epochs, four.epochs) == (1, 4)
    assert four.peak_ms == pytest.approx(one.peak_ms + 102)  # records of the next epoch waited for one pull already
    assert four.duration_s > 3 * one.duration_s


def test_a_source_serves_all_its_targets_at_one_bandwidth():
    setting = make_setting(bins=8, workers=4)
    goal = setting.initial.copy()
    goal[:2] = (2, 3)  # both bins of worker 0, to two new owners
    found = predict("megaphone-all-at-once", replace(setting, goal=goal))
    assert found.longest_pull_ms == pytest.approx(200)


def test_a_restart_costs_its_stop():
    short = predict("runtime-restart", make_setting())
    long = predict("runtime-restart", make_setting(costs=replace(COSTS, query_s=1.5)))
    assert long.peak_ms - short.peak_ms == pytest.approx(1000)
    assert long.duration_s - short.duration_s == pytest.approx(1)
    assert predict("restart-application", make_setting()).peak_ms > short.peak_ms


def test_fewer_slots_than_workers_stretch_the_work():
    busy = replace(COSTS, record_us=100)
    free, shared = (predict("none", make_setting(costs=replace(busy, slots=slots))) for slots in (0, 1))
    assert shared.steady_max_ms > free.steady_max_ms


def test_workers_that_cannot_keep_up_are_refused():
    with pytest.raises(UsageError, match=r"worker 0 gets 1\.2 times the records"):
        predict("none", make_setting(costs=replace(COSTS, record_us=600)))
    with pytest.raises(UsageError, match=r"need 1\.6 cores and have 1"):
        predict("none", make_setting(costs=replace(COSTS, record_us=200, slots=1)))


def test_the_seed_decides_everything():
    def figures(seed):
        found = predict("meces", make_setting(moves=4, costs=replace(COSTS, jitter=0.2), seed=seed))
        return replace(found, planning_s=0.0)

    assert figures(3) == figures(3)
    assert figures(3) != figures(4)


@pytest.mark.parametrize("workers", ["100", "100:120", "100:80"])
@pytest.mark.parametrize("name", catalog.names())
def test_every_mechanism_completes_with_100_workers_and_1024_bins(name, workers):
    scenario = make_scenario({"workers": workers, "bins": 1024, "state": "1GB", "rate": "200k", "mechanism": name})
    setting = scenario.setting(COSTS)
    found = predict(name, setting)
    assert found.moved_bins == (0 if name == "none" else int((setting.initial != setting.goal).sum()))
    assert name == "none" or found.peak_ms >= 0.9 * found.steady_max_ms


def test_no_record_is_lost_while_a_bin_waits():
    setting = make_setting(bins=4, workers=2, rate=4000.0)
    cluster = ModelCluster(EvenLoad(setting.shares * setting.rate), COSTS, setting.sizes, setting.initial)
    plans = [EpochPlan(setting.initial, hold=(1,) if 3 <= epoch < 6 else ()) for epoch in range(9)]
    ran = [cluster.run(WrittenPlan(epoch, 1, 2, plan)) for epoch, plan in enumerate(plans)]
    arrived = sum(int(seen.records[1].sum()) for seen, _ in ran)
    assert sum(int(epoch.latencies.count.sum()) for _, epoch in ran) == arrived > 0
    assert [epoch.queued for _, epoch in ran[3:7]] == [100, 200, 300, 0]
    assert ran[6][1].latencies.max == pytest.approx(450)  # it waited from the cut before the first of four epochs


def test_histogram_agrees_with_single_records():
    rng = np.random.default_rng(5)
    low = rng.uniform(10, 400, 60)
    segments = Segments(low, low + rng.uniform(0, 300, 60), rng.integers(1, 2000, 60))
    histogram = Histogram()
    for part in (slice(0, 20), slice(20, 60)):
        histogram.add(Segments(segments.low[part], segments.high[part], segments.count[part]))
    rows = zip(segments.low, segments.high, segments.count, strict=True)
    single = np.concatenate([np.linspace(a, b, n) for a, b, n in rows])
    for share in (0.1, 0.5, 0.9, 0.99):
        assert histogram.percentile(share) == pytest.approx(np.quantile(single, share), rel=0.03)
    assert histogram.counts.sum() == pytest.approx(segments.count.sum())
    assert histogram.max_ms == segments.high.max()


def test_load_adds_up_however_time_is_cut():
    load = EvenLoad(np.array([0.3, 7.0, 1000.0]))
    whole = load.until(10_000.0) - load.until(0.0)
    cuts = [load.until(at) for at in (0.0, 1.5, 777.7, 9000.0, 10_000.0)]
    assert (np.diff(cuts, axis=0).sum(axis=0) == whole).all()
    assert np.abs(whole - load.rates * 10).max() <= 1


def test_zipf_shares_are_skewed_and_sum_to_one():
    even, skewed = zipf_bins(64, 1_000_000, 0.0), zipf_bins(64, 1_000_000, 1.0)
    assert even.max() == even.min() == 1 / 64
    assert skewed.sum() == pytest.approx(1)
    assert skewed.max() > 1 / np.log(1_000_000) / 1.2 > 2 * even.max()  # the hottest key alone has 1 / H(n)
