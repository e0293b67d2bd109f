"""A chain's stages end together, whichever of them ends first, and why."""

import threading

import pytest

from impls import chains
from impls.chains import Chain
from impls.errors import StateError

DEADLINE_S = 30.0


class Handle:
    """A query that ends when it is told to."""

    def __init__(self):
        self._over, self.failed, self.wants_restart, self.stopped = threading.Event(), None, False, 0
        self.migrating, self.awaited = False, threading.Event()

    def end(self, *, failed=None, wants_restart=False):
        self.failed, self.wants_restart = failed, wants_restart
        self._over.set()

    def ended(self, timeout_s):
        return self._over.wait(timeout_s)

    def status(self):
        self.awaited.set()
        return {"migrating": self.migrating}

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
