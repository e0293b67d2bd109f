"""Hosts in the simulator of large migrations: what crosses the network, and what that takes, worked out by hand."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from round_costs import COSTS

from harness.suites.scale.command import run_simulate_scale
from harness.suites.scale.network import Crossing, ModelNetwork
from harness.suites.scale.simulate import SimulationSetting, predict
from impls.protocol.seats import seat_workers

BIN_BYTES = 100_000
FAST = float("inf")


def crossing(targets, sources, network, sizes=None):
    sizes = [BIN_BYTES] * len(targets) if sizes is None else sizes
    return Crossing(network, COSTS, np.array(targets, np.int32), np.array(sources, np.int32), np.array(sizes, float))


def network(homes, **more):
    return ModelNetwork(np.array(homes, np.int64), **more)


def setting(homes, *, moves=1, **more):
    """Eight bins on four workers; the first ones move from worker 0 to worker 2."""
    initial = (np.arange(8) // 2).astype(np.int32)
    goal = initial.copy()
    goal[:moves] = 2
    how = None if homes is None else network(homes, **more)
    return SimulationSetting(
        initial, goal, np.full(8, BIN_BYTES, np.int64), np.full(8, 1 / 8), 8000.0, COSTS, network=how
    )


def test_a_bin_from_another_host_costs_what_arithmetic_says():
    found = predict("megaphone-all-at-once", setting([0, 0, 1, 1]))
    assert found.longest_pull_ms == pytest.approx(5 + 3 + 200)  # the request, the bin, 100,000 bytes at 0.5 MB/s
    assert (found.moved_bytes, found.crossed_bytes) == (BIN_BYTES, BIN_BYTES)


def test_a_bin_within_a_host_costs_as_much_as_without_hosts():
    with_hosts, without = (predict("megaphone-all-at-once", setting(homes)) for homes in ([0, 1, 0, 1], None))
    assert with_hosts.longest_pull_ms == without.longest_pull_ms
    assert with_hosts.crossed_bytes == 0


def test_a_pull_waits_for_the_server_that_others_ask_too():
    apart, shared = ([0, 1, 2, 3], [0, 0, 2, 3])
    slow = replace(COSTS, serve_bytes_s=4e5)  # 250 ms for each bin
    one, both = (
        replace(crossing([2, 3], [0, 1], network(homes)), costs=slow).times_ms(4).tolist() for homes in (apart, shared)
    )
    assert one == pytest.approx([0, 0, 250 + 2, 250 + 2])
    assert both == pytest.approx([0, 0, 2 * (250 + 2), 2 * (250 + 2)])


def test_a_worker_asks_one_source_after_the_other():
    found = crossing([2, 2], [0, 1], network([0, 1, 2])).times_ms(3)
    assert found[2] == pytest.approx(2 * (5 + 3 + 200))


def test_hosts_share_what_the_network_lets_them_receive():
    found = crossing([2, 3], [0, 1], network([0, 1, 2, 2], bytes_s=1e5)).times_ms(4)
    assert found[2:].tolist() == pytest.approx([2000, 2000])  # 200,000 bytes for both


@pytest.mark.parametrize(("delay_ms", "size", "ms"), [(0, 10**9, 0), (10, 0, 40), (10, 3 << 16, 80), (5, 3 << 16, 40)])
def test_a_delay_is_waited_for_until_the_window_has_grown(delay_ms, size, ms):
    assert network([0, 1], delay_ms=delay_ms).waits_ms(np.array([size]))[0] == pytest.approx(ms)


def test_the_window_grows_no_further_than_the_network_is_long():
    few = network([0, 1], delay_ms=10, bytes_s=1e6).waits_ms(np.array([1 << 30]))[0]
    assert few < network([0, 1], delay_ms=10).waits_ms(np.array([1 << 30]))[0]


def test_workers_are_dealt_out_as_seats_are():
    hosts = ModelNetwork.of(4, 10, seed=3).homes
    seats = seat_workers([f"h{n % 4}" for n in range(12)], 10, {})
    assert sorted(Counter(hosts.tolist()).values()) == sorted(Counter(seat % 4 for seat in seats).values())
    assert (
        ModelNetwork.of(4, 10, seed=3).homes.tolist() == hosts.tolist() != ModelNetwork.of(4, 10, seed=4).homes.tolist()
    )


@pytest.mark.parametrize("name", ["megaphone-all-at-once", "megaphone-batched", "meces", "partial-pause"])
def test_a_narrower_network_makes_a_migration_longer(name):
    wide, narrow = (predict(name, setting([0, 0, 1, 1], moves=2, bytes_s=most)) for most in (FAST, 1e5))
    assert narrow.duration_s > wide.duration_s
    assert narrow.crossed_bytes == wide.crossed_bytes == 2 * BIN_BYTES


@pytest.mark.parametrize("name", ["restart-application", "external-state"])
def test_what_comes_from_no_other_worker_does_not_count_as_crossed(name):
    assert predict(name, setting([0, 0, 1, 1], moves=2)).crossed_bytes == 0


def test_the_table_shows_the_bytes_between_hosts(capsys):
    small = {"workers": 8, "bins": 64, "state": "1GB", "rate": "10k", "mechanism": "megaphone-all-at-once", "jobs": 1}
    assert run_simulate_scale({**small, "hosts": 4, "net_mbps": 1000, "net_delay_ms": 2}) == 0
    printed = capsys.readouterr().out
    assert "8 workers on 4 hosts with 1,000 Mbit/s and 2 ms of delay" in printed
    assert "hosts MiB" in printed
    assert run_simulate_scale(small) == 0
    assert "hosts MiB" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"hosts": 9}, "9 hosts are more than the 8 workers"),
        ({"net_mbps": 100}, "say how many there are with --hosts"),
        ({"hosts": 2, "net_mbps": 0}, "bandwidth"),
        ({"hosts": 2, "net_delay_ms": -1}, "delay"),
    ],
)
def test_a_bad_network_gets_one_sentence(options, says, capsys):
    assert run_simulate_scale({"workers": 8, "bins": 64, "state": "1GB", "rate": "10k", **options}) == 2
    error = capsys.readouterr().err
    assert says in error
    assert len(error.strip().splitlines()) == 1
