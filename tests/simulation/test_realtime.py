"""Real-time queries under faults, simulated: nothing is lost, doubled, out of order or stuck, and a seed is one run."""

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from chaos.outcome import assert_one_digest
from chaos.parameters import CASES
from realtime.parameters import KINDS, draw
from realtime.runs import simulate

from impls.durability.pins import Pins
from impls.protocol.coordinator import Coordinator
from impls.reading import cuts
from impls.reading.environments import Views, Where
from impls.reading.stored import StoredQuery


@pytest.mark.sampled(10)
@pytest.mark.parametrize(("seed", "fixed"), CASES)
def test_nothing_goes_wrong_in_real_time_under_faults(seed, fixed):
    outcome = simulate(draw(seed, **fixed))
    assert outcome.violation is None, outcome.sentence


@pytest.mark.parametrize("seed", [45, 62, 99, 112, 201, 364, 376, 436, 468, 520, 573])
def test_a_query_survives_bits_that_flip_in_its_environments(seed):
    """Each of these seeds has lost or doubled something, or could not go on, by another way in which damage hides."""
    outcome = simulate(draw(seed, changes=(), durability="process", rates={"flip": 0.03}, most=9))
    assert outcome.violation is None, outcome.sentence


def counting(seed):
    """A query of whose keys every count is looked at, time and again."""
    return draw(seed, changes=(), refused=0.0, operator=("hash", "dense", "preloaded")[seed % 3])


@pytest.mark.sampled(10)
@pytest.mark.parametrize("seed", range(100, 140))
def test_keys_are_read_as_commits_have_left_them(seed):
    outcome = simulate(counting(seed))
    assert outcome.violation is None, outcome.sentence


def test_a_reader_that_goes_to_the_old_owner_or_to_the_new_one_too_early_is_seen(monkeypatch):
    def at(looked, key, owner):
        looked._ask([(owner, key)])
        look = looked._looks[owner, key]
        if isinstance(look, Exception):
            raise look
        return Where(look.found, look.epoch)

    def at_location(looked, key, place):
        return at(looked, key, (place.location, ""))

    def too_early(looked, key, place):
        return at(looked, key, (place.location if place.target is None else place.target, ""))

    for wrong in (at_location, too_early):
        monkeypatch.setattr(Views, "of", wrong)
        assert simulate(counting(115)).violation == "lookup", wrong.__name__


def test_routers_that_send_behind_the_last_epoch_are_seen(monkeypatch):
    monkeypatch.setattr(Coordinator, "last", property(lambda _: False, lambda *_: None), raising=False)
    assert simulate(draw(57)).violation == "last"


def test_a_cut_whose_files_go_or_that_is_of_two_epochs_is_seen(monkeypatch):
    def two_epochs(cut, *_, **__):
        stored, pin = cut._stored, cut._stored._pin
        ended = replace(pin.ended, epoch=pin.ended.epoch - 1)
        pin = replace(pin, manifest=pin.manifest.as_of(ended.epoch), ended=ended)
        cut._stored = StoredQuery(stored.folder, stored.files.uri, pin)
        return plain(cut)

    with monkeypatch.context() as patch:
        patch.setattr(Pins, "held", lambda _: [])
        assert simulate(counting(115)).violation == "cut"
    plain = cuts.Cut.to_pandas
    monkeypatch.setattr(cuts.Cut, "to_pandas", two_epochs)
    assert simulate(counting(115)).violation == "cut"


@pytest.mark.lengthy
@pytest.mark.parametrize("seed", [5, 1234])
def test_two_real_time_runs_of_a_seed_give_one_digest(seed):
    assert_one_digest(lambda number: simulate(draw(number)), seed)


@pytest.mark.lengthy
def test_every_kind_of_fault_of_real_time_happens():
    fired = Counter[str]()
    rates = {**dict.fromkeys(KINDS, 0.01), "again": 0.5}  # ends of batches are few
    for seed in range(40):
        fired += simulate(draw(seed, durability="process", most=20, rates=rates)).fired
        if set(fired) == set(KINDS):
            return
    pytest.fail(f"in 40 queries these never happened: {set(KINDS) - set(fired)}")
