"""Bugs of a cluster planted in the real code: the simulation of hosts finds each, by the check that it must violate."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "simulation"))

from chaos.host_parameters import draw_on_hosts
from chaos.query import simulate
from planted import find, stale_environment_accepted

from impls.errors import CorruptStateError
from impls.protocol import seats
from impls.protocol.controller import Controller
from impls.transfer import client, server, ticket
from impls.transfer.server import BinServer
from impls.worker import pull as pulling
from impls.worker import replicas

# a process that dies leaves its files to the system, an attempt that dies leaves them to the collector
pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored in.*writer:pytest.PytestUnraisableExceptionWarning")
SEEDS = 1000
MOVES = ((2, "rescale", 6), (5, "home", 0), (8, "shuffle", 1), (11, "rescale", 2), (14, "home", 0), (18, "shuffle", 3))
MOVING = {"commands": MOVES, "faults": 0}


def source_of_a_wrong_epoch_accepted(patch):
    patch.setattr(server, "check_source", lambda *_, **__: None)


def home_never_changed(patch):
    plain = Controller.observe

    def observe(self, seen):
        before = dict(self.homes)
        events = plain(self, seen)
        self.homes |= before
        return events

    patch.setattr(Controller, "observe", observe)


def token_of_an_old_generation_accepted(patch):
    """Secret and generation are not looked at, so that an attempt of an old driver is served."""

    def admitted(_server, sealed):
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(ticket.hmac, "compare_digest", lambda *_: True)
            return ticket.open_request(sealed, b"")

    patch.setattr(BinServer, "_admitted", admitted)


def two_seats_for_one_worker(patch):
    plain = seats.workers_of_seats

    def workers_of_seats(seat_of, number):
        taken = list(plain(seat_of, number))
        if -1 in taken:
            taken[taken.index(-1)] = 0
        return tuple(taken)

    patch.setattr(seats, "workers_of_seats", workers_of_seats)


def sound_home_left(patch):
    plain = seats.seat_workers
    patch.setattr(seats, "seat_workers", lambda on, workers, _homes, **more: plain(on, workers, {}, **more))


def bins_of_a_broken_pull_taken_for_there(patch):
    def fetch(*args, **more):
        try:
            yield from client.fetch(*args, **more)
        except CorruptStateError:
            yield from ((bin_, 0) for bin_ in args[2].bins)

    patch.setattr(pulling, "fetch", fetch)


def bin_that_did_not_come_whole_kept(patch):
    """Of a pull that broke off, what has come is left where the checkpoint's bin is put over it."""
    patch.setattr(pulling, "drop_bin", lambda *_, **__: None)


def replica_of_a_host_that_is_back_taken_for_current(patch):
    """The last epoch of any replica of a bin is believed of all of them."""
    newest: dict[int, int] = {}
    plain = replicas._set_epoch

    def set_epoch(txn, bin_, epoch):
        newest[bin_] = epoch
        plain(txn, bin_, epoch)

    patch.setattr(replicas, "_epoch_of", lambda _txn, bin_: newest.get(bin_, -1))
    patch.setattr(replicas, "_set_epoch", set_epoch)


GONE = {"host_kinds": {"gone": 1}}
BROKEN = {**MOVING, "host_kinds": {"link": 1}, "host_faults": 8}
OLD_DRIVERS = {"kinds": {"hang": 1, "driver": 1}, "faults": 16, "host_kinds": {"cut": 1}, "host_faults": 6}

# what is drawn for it, and the checks that may find it
BUGS = {
    source_of_a_wrong_epoch_accepted: (
        {"commands": MOVES, "kinds": {"stale": 1}, "faults": 12, "host_faults": 0},
        {"transfer"},
    ),
    home_never_changed: ({**MOVING, **GONE, "host_faults": 3}, {"homes"}),
    stale_environment_accepted: ({**MOVING, **GONE, "host_faults": 6}, {"attempts", "results", "state", "stuck"}),
    token_of_an_old_generation_accepted: ({"commands": MOVES, **OLD_DRIVERS}, {"transfer"}),
    two_seats_for_one_worker: ({**MOVING, "host_faults": 0}, {"seats"}),
    sound_home_left: ({**MOVING, "host_faults": 2}, {"seats"}),
    bins_of_a_broken_pull_taken_for_there: (BROKEN, {"results", "state"}),
    bin_that_did_not_come_whole_kept: (BROKEN, {"recovery", "results", "state"}),
    replica_of_a_host_that_is_back_taken_for_current: (
        {**MOVING, **GONE, "host_faults": 6, "mechanism": "rhino"},
        {"replica", "results", "state"},
    ),
}


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_bug_planted_on_a_cluster_is_found(plant):
    drawn, checks = BUGS[plant]
    find(plant, lambda seed: simulate(draw_on_hosts(seed, changes=(), **drawn)), checks, SEEDS)
