"""Pulls between two hosts with real servers: whole bins, also on demand, and the checkpoint where a server fails."""

import os
import signal

import numpy as np
import pytest
from hosts import A, B, HostWorkers, until

from impls.errors import StateError
from impls.operators import DenseCount
from impls.protocol.plan import Pull
from impls.transfer.places import Places


def moves_of(workers, target, source):
    """Pulls of every bin from one worker to another."""
    return [Pull(int(bin_), source, target) for bin_ in np.flatnonzero(workers.location == source)]


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
    for _ in range(3):
        workers.epoch()
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
