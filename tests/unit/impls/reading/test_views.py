"""Which owner of a bin is looked at, and what a look that fails does to others."""

from types import SimpleNamespace

import pytest

from impls.errors import CorruptStateError, StateError, UsageError
from impls.protocol.places import BinPlace
from impls.reading import environments
from impls.reading.environments import Environments, Views
from impls.store.lookup import KeyEntries, Seen
from impls.transfer.client import SilentError
from impls.transfer.settings import Transfer

HERE, GONE = KeyEntries(True, 0, [(b"name", b"value")]), KeyEntries(False, 0, [])
UNDER_WAY = BinPlace(0, 1, 7, ("old", "new"))


def views(owners, keys, values="json"):
    """Looks at environments of which each is (epoch, begun, what it has of every key), or raises."""
    asked = []

    def look(worker, home, values, keys):
        asked.append((worker, home, keys))
        if isinstance(owners[worker], Exception):
            raise owners[worker]
        epoch, begun, found = owners[worker]
        return Seen(epoch, begun, [found] * len(keys))

    return Views(SimpleNamespace(look=look), values, keys), asked


@pytest.mark.parametrize("old", [CorruptStateError("damaged"), UsageError("too large"), SilentError("gone")])
def test_the_old_owner_of_a_bin_that_has_come_does_not_matter(old):
    looked, asked = views({0: old, 1: (6, 7, HERE)}, [((3, b"k"), UNDER_WAY)])
    assert looked.of((3, b"k"), UNDER_WAY) == (HERE, 6)
    assert [worker for worker, *_ in asked] == [1]


@pytest.mark.parametrize("new", [CorruptStateError("damaged"), SilentError("gone"), (7, 7, GONE), (9, 6, HERE)])
def test_a_bin_that_has_not_come_or_of_which_that_is_not_known_is_at_its_old_owner(new):
    looked, _ = views({0: (9, 9, HERE), 1: new}, [((3, b"k"), UNDER_WAY)])
    assert looked.of((3, b"k"), UNDER_WAY) == (HERE, 6)


def test_each_owner_is_looked_at_once_for_all_keys_and_what_one_look_has_shown_stays():
    settled = BinPlace(1, None, 7, ("new", ""))
    keys = [((bin_, b"k"), UNDER_WAY if bin_ % 2 else settled) for bin_ in range(6)]
    looked, asked = views({0: (6, 6, HERE), 1: (6, 7, HERE)}, keys)
    assert [(worker, len(own)) for worker, _, own in asked] == [(1, 6)]
    assert [looked.of(*key).epoch for key in keys] == [6] * 6
    looked, asked = views({0: (6, 6, HERE), 1: (6, 6, HERE)}, keys)
    assert [(worker, len(own)) for worker, _, own in asked] == [(1, 6), (0, 3)]


def test_a_host_that_does_not_answer_is_asked_once_for_all_its_workers():
    places = [BinPlace(worker, None, 7, ("far", "")) for worker in range(5)]
    keys = list(zip([(bin_, b"k") for bin_ in range(5)], places, strict=True))
    looked, asked = views(dict.fromkeys(range(5), SilentError("Host far has sent nothing.")), keys)
    assert len(asked) == 1
    for key in keys:
        with pytest.raises(StateError, match="Host far has sent nothing"):
            looked.of(*key)
    looked, asked = views(dict.fromkeys(range(5), CorruptStateError("damaged")), keys)
    assert len(asked) == 5


def test_a_dense_bin_that_is_not_where_it_is_to_be_is_damage():
    settled = BinPlace(1, None, 7, ("", ""))
    looked, _ = views({1: (7, 7, GONE)}, [((3, b"k"), settled)], "dense")
    with pytest.raises(CorruptStateError, match="Bin 3 is not there: the state of worker 1 is damaged"):
        looked.of((3, b"k"), settled)
    looked, _ = views({1: (7, 7, GONE)}, [((3, b"k"), settled)])
    assert looked.of((3, b"k"), settled).found.entries == []


def test_those_who_wait_for_another_host_take_no_place_of_those_who_read_here(tmp_path, monkeypatch):
    free = []
    where = Environments("q", 1, str(tmp_path), Transfer.new(), lambda: {"far": "grpc+tcp://far:1"})
    monkeypatch.setattr(environments, "look_from", lambda *_: free.append(where._turns._value))
    where.look(1, "far", "json", ((0, b"k"),))
    assert free == [environments._AT_ONCE]
