"""A chain's stages end together, whichever of them ends first, and why; whose watermark follows whose."""

import threading
from types import SimpleNamespace

import pytest

from impls import chains
from impls.chains import Chain
from impls.driver.preparing import NOTHING
from impls.errors import StateError, UsageError

DEADLINE_S = 30.0


class Handle:
    """A query that ends when it is told to."""

    def __init__(self):
        self._over, self.failed, self.wants_restart, self.stopped = threading.Event(), None, False, 0
        self.migrating, self.awaited, self.waits = False, threading.Event(), []

    def end(self, *, failed=None, wants_restart=False):
        self.failed, self.wants_restart = failed, wants_restart
        self._over.set()

    def ended(self, timeout_s):
        return self._over.wait(timeout_s)

    def status(self):
        self.awaited.set()
        return {"migrating": self.migrating}

    def await_migration(self, timeout_s):
        self.waits.append(timeout_s)
        return not self.migrating

    def stop(self):
        self.stopped += 1
        self._over.set()


@pytest.fixture
def handles():
    return {"one": Handle(), "two": Handle(), "three": Handle()}


@pytest.mark.parametrize("which", ["one", "two", "three"])
def test_a_stage_that_is_stopped_ends_the_others(handles, which):
    chain = Chain(handles)
    assert not chain.await_end(0)
    handles[which].end()
    assert chain.await_end(DEADLINE_S)
    assert [handle.stopped for name, handle in handles.items() if name != which] == [1, 1]
    assert handles[which].stopped == 0


def test_a_stage_that_wants_another_session_ends_the_others_and_the_chain_says_so(handles):
    chain = Chain(handles)
    assert not chain.wants_restart
    handles["two"].end(wants_restart=True)
    assert chain.await_end(DEADLINE_S)
    assert chain.wants_restart


def test_a_stage_whose_migration_wants_the_same_session_anew_gets_time_to_say_so(handles):
    chain = Chain(handles)
    handles["one"].migrating = True
    handles["two"].end(wants_restart=True)
    assert handles["one"].awaited.wait(DEADLINE_S)
    assert not handles["one"].ended(0)
    handles["one"].end(wants_restart=True)
    assert chain.await_end(DEADLINE_S)
    assert [handle.stopped for handle in handles.values()] == [0, 0, 1]


def test_a_stage_whose_migration_goes_on_without_it_is_stopped_after_a_while(handles, monkeypatch):
    monkeypatch.setattr(chains, "_GRACE_S", 0.1)
    chain = Chain(handles)
    handles["one"].migrating = True
    handles["two"].end(wants_restart=True)
    assert chain.await_end(DEADLINE_S)
    assert [handle.stopped for handle in handles.values()] == [1, 0, 1]


def test_a_stage_that_fails_is_named(handles):
    chain = Chain(handles)
    handles["three"].end(failed=ValueError("no such thing"))
    with pytest.raises(StateError, match="The stage three has failed: no such thing"):
        chain.await_end(DEADLINE_S)
    assert [handle.stopped for handle in handles.values()] == [1, 1, 0]


def test_a_stage_that_does_not_end_in_its_time_has_not_ended(handles, monkeypatch):
    def stays():
        raise StateError("did not end in 60 s")

    monkeypatch.setattr(handles["two"], "stop", stays)
    chain = Chain(handles)
    handles["one"].end()
    chain._watch.join(DEADLINE_S)
    assert not chain.ended(0.05)
    handles["two"].end()
    assert chain.ended()


def test_migrations_are_awaited_together_until_none_is_under_way(handles):
    chain = Chain(handles)
    assert chain.await_migration(5)
    assert all(0 < wait <= 5 for handle in handles.values() for wait in handle.waits)
    handles["three"].migrating = True
    assert not chain.await_migration(0)

    def begins_another(timeout_s):
        handles["one"].migrating, handles["two"].await_migration = True, lambda _: True
        return True

    def ends(_timeout_s):
        handles["one"].migrating = False
        return True

    handles["three"].migrating = False
    handles["one"].await_migration, handles["two"].await_migration = ends, begins_another
    assert chain.await_migration(5)
    assert not handles["one"].migrating, "it began while another stage was waited for"
    for handle in handles.values():
        handle.end()


def sender(*, timed):
    clock = object() if timed else None
    return SimpleNamespace(changes=SimpleNamespace(driver=SimpleNamespace(controller=SimpleNamespace(clock=clock))))


STARTED = {"windows": sender(timed=True), "sums": sender(timed=True), "maps": sender(timed=False),
           "more": sender(timed=False)}  # fmt: skip


@pytest.mark.parametrize(
    ("inputs", "follows"),
    [
        (["input"], "nobody"), (["windows"], "them"), (["windows", "sums"], "them"), (["maps"], "nobody"),
        (["maps", "more"], "nobody"), (["windows", "maps"], "refused"), (["windows", "input"], "refused"),
        (["maps", "input"], "refused"), (["windows", "maps", "input"], "refused"),
    ],
)  # fmt: skip
def test_a_watermark_follows_all_that_a_stage_reads_or_the_times_of_one_kind(monkeypatch, inputs, follows):
    monkeypatch.setattr(chains, "_ends_of", lambda out: dict)
    prepared = chains._following(STARTED, dict.fromkeys(STARTED), inputs)
    if follows == "nobody":
        assert prepared is NOTHING
    elif follows == "refused":
        with pytest.raises(UsageError, match="nobody knows how far in event time that is"):
            prepared.follow(None, None, None)
    else:
        followed = []
        monkeypatch.setattr(chains, "sending", lambda driver, _ends: driver)
        monkeypatch.setattr(chains, "follow", lambda senders, *_: followed.extend(senders))
        prepared.follow(None, None, None)
        assert followed == [STARTED[one].changes.driver for one in inputs]
