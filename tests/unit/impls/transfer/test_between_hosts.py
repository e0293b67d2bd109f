"""Pulls between two hosts with real servers: whole bins, also on demand, and the checkpoint where a server fails."""

import os
import re
import shutil
import signal
from dataclasses import replace

import numpy as np
import pytest
from hosts import A, B, HostWorkers, until

from impls.durability.frame import frame_name
from impls.errors import StateError
from impls.operators import DenseCount
from impls.protocol.plan import Pull
from impls.store.environment import Store
from impls.store.tables import STATE, bin_range, iter_range
from impls.transfer.process import Places
from impls.transfer.settings import Transfer, certificate_of
from impls.worker.attempts import run_epoch


def moves_of(workers, target, source):
    """Pulls of every bin from one worker to another."""
    return [Pull(int(bin_), source, target) for bin_ in np.flatnonzero(workers.location == source)]


@pytest.mark.lengthy
@pytest.mark.parametrize("operator", [None, "dense"])
def test_bins_move_between_hosts_and_none_comes_from_the_checkpoint(tmp_path, operator):
    more = {"operator": DenseCount(20_000)} if operator else {}
    workers = HostWorkers(tmp_path, keys=20_000, **more)
    workers.until_served()
    pulls = moves_of(workers, 1, 0)
    moves = workers.epoch(pulls)[1].moves
    assert (moves.bins, moves.restored, moves.lost) == ([p.bin for p in pulls], 0, [])
    [[host, size, ms]] = moves.network
    assert host == A
    assert size == moves.bytes > 0
    assert ms > 0
    workers.epochs(3)
    workers.check()
    until("the count", lambda: Places(tmp_path / "state" / A, "q", 1).read()["served"] == 1)


def test_what_is_needed_comes_first_when_pulls_are_on_demand(tmp_path):
    workers = HostWorkers(tmp_path)
    workers.until_served()
    pulls = moves_of(workers, 1, 0)
    moved = workers.epoch(pulls, on_demand=True, records=100)[1].moves
    assert set(moved.bins) == {p.bin for p in pulls}
    assert (moved.restored, [row[0] for row in moved.network]) == (0, [A])
    workers.check()


@pytest.mark.lengthy
def test_a_host_whose_server_was_killed_loses_nothing_and_gets_another_one(tmp_path):
    workers = HostWorkers(tmp_path)
    workers.until_served()
    os.kill(Places(tmp_path / "state" / A, "q", 1).read()["pid"], signal.SIGKILL)
    pulls = moves_of(workers, 1, 0)
    moves = workers.epoch(pulls)[1].moves
    assert (moves.restored, [row[0] for row in moves.lost]) == (len(pulls), [0])
    assert moves.lost[0][1].startswith(f"Host {A} does not ")
    gone = workers.servers[A]
    until("another server", lambda: workers.epoch() and workers.servers[A] != gone)
    back = [Pull(p.bin, 1, 0) for p in pulls]
    assert workers.epoch(back)[0].moves.network[0][0] == B
    workers.check()


def test_without_a_checkpoint_a_host_that_does_not_answer_fails_the_attempt(tmp_path):
    workers = HostWorkers(tmp_path, durable=False)
    workers.epoch()
    with pytest.raises(StateError, match=r"Worker 0 cannot hand over its bins: Host 127\.0\.0\.2 hands out no bins"):
        workers.epoch(moves_of(workers, 1, 0), servers=())


def test_a_host_that_is_back_with_an_old_folder_hands_out_nothing(tmp_path):
    workers = HostWorkers(tmp_path)
    workers.until_served()
    old = tmp_path / "old"
    shutil.copytree(workers.environment(0), old)
    workers.epochs(2)
    shutil.rmtree(workers.environment(0))
    old.rename(workers.environment(0))
    workers.at[0] = B  # its worker is restored elsewhere, and goes on there
    workers.epoch(homes=((0, B), (1, B), (2, B)))
    pulls = moves_of(workers, 1, 0)
    moves = workers.epoch(pulls, homes=((0, A), (1, B), (2, B)))[1].moves  # as a driver would say that knows no better
    assert moves.restored == len(pulls)
    assert re.search(
        r"Worker 0 on 127.0.0.2 is to hand over bins in epoch \d+, but its state is of epoch", moves.lost[0][1]
    )
    workers.check()


def test_an_environment_that_was_rebuilt_since_the_server_read_it_is_read_anew(tmp_path):
    workers = HostWorkers(tmp_path)
    workers.until_served()
    for _ in range(3):
        pulls = moves_of(workers, 1, 0)[:1]
        assert workers.epoch(pulls)[1].moves.restored == 0
        workers.epoch()
        workers.lose(0)
        assert workers.epoch()[0].recovered == "missing"
    workers.check()


def test_a_damaged_environment_of_another_host_is_replaced_by_the_checkpoint(tmp_path):
    workers = HostWorkers(tmp_path)
    workers.until_served()
    pulls = moves_of(workers, 1, 0)
    while pulls[-1].bin in workers.keeper.to_snapshot(workers.number + 1):
        workers.epoch()  # its owner would find the damage first, and rebuild itself
    with Store.open(workers.environment(0)) as store, store.begin() as txn:
        [name] = [bytes(key) for key, _ in iter_range(txn, *bin_range(STATE, pulls[-1].bin))][-1:]
        txn.delete(name)
    moves = workers.epoch(pulls)[1].moves
    assert moves.bins == [p.bin for p in pulls]
    assert moves.restored == 1, "the bins before the damaged one came over the network"
    assert "entries where" in moves.lost[0][1]
    assert moves.network[0][1] > 0


def test_a_source_that_is_ahead_ends_the_attempt(tmp_path):
    workers = HostWorkers(tmp_path)
    workers.until_served()
    order = workers.order(moves_of(workers, 1, 0))
    workers.epochs(2)
    shutil.rmtree(workers.environment(1))
    for epoch in range(order.written.epoch, workers.number + 1):  # else it would answer as before
        workers.files.delete([frame_name(epoch, 1)])
    with pytest.raises(StateError, match=r"Worker 0 on 127.0.0.2 is to hand over bins .* this attempt is outdated"):
        run_epoch(workers.task(replace(order, fresh=(1,)), 1), [])


def test_a_map_that_is_full_in_the_middle_of_a_pull_starts_it_again(tmp_path, monkeypatch):
    monkeypatch.setattr("impls.worker.held.MAP_BYTES", 1 << 18)
    workers = HostWorkers(tmp_path, keys=300_000, operator=DenseCount(300_000))
    workers.until_served()
    workers.epoch(moves_of(workers, 2, 1))
    moves = workers.epoch(moves_of(workers, 2, 0))[2].moves
    assert (moves.restored, [row[0] for row in moves.network]) == (0, [A])
    workers.epoch()
    workers.check()


def test_two_hosts_hand_over_at_once_and_over_tls(tmp_path):
    transfer = Transfer.new(*certificate_of("auto"))
    workers = HostWorkers(tmp_path, at={0: A, 1: B, 2: "127.0.0.4"}, transfer=transfer)
    workers.until_served()
    moves = workers.epoch(moves_of(workers, 2, 0) + moves_of(workers, 2, 1))[2].moves
    assert ([row[0] for row in moves.network], moves.restored) == ([A, B], 0)
    assert moves.bytes == sum(row[1] for row in moves.network)
    workers.epoch()
    workers.check()
