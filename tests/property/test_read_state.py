"""State read from a checkpoint is what the operator's calls have left, at the end of every epoch that is kept."""

import re
import tempfile
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from far import Far
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from timed import BINS, TimedRun

from impls.errors import StateError, UsageError
from impls.operators.timed import KeyedProcess
from impls.protocol.eventtime import EventTime
from impls.reading.cuts import Cut
from impls.reading.state import read_state, state_at
from impls.reading.texts import differences
from impls.store.hashing import bin_of_hash, hash_bytes

FAR, LONG, LONGEST = 1 << 40, b"long" * 50, b"longest" * 80
MECHANISMS = {"megaphone-batched": {}, "megaphone-fluid": {}, "meces": {"background_share": 0.0}, "rhino": {}}
KEYS = (b"a", b"b", b"key 3", b"", LONG, LONGEST)
FIELDS = (b"x", b"", b"field" * 50)


class Everything(KeyedProcess):
    """Does with a key's state what records say."""

    event_time = EventTime("at")
    columns = ("at", "what", "n")

    def record(self, record, one):
        what, n = record["what"], record["n"]
        match what:
            case "value":
                one.set_value(n or None, "v")
            case "append":
                one.append(n, "l")
            case "clear":
                one.clear("l")
            case "field":
                one.set_field(FIELDS[n % 3], n or None, "m")
            case "timer":
                one.set_timer(FAR + n)
            case "cancel":
                one.cancel_timer(FAR + n)


def model(records):
    """What records leave, as rows of read_state without bins."""
    values, lists, fields, timers = {}, {}, {}, set()
    for key, what, n in records:
        match what:
            case "value":
                values[key] = n or None
            case "append":
                lists.setdefault(key, []).append(n)
            case "clear":
                lists.pop(key, None)
            case "field":
                fields[key, FIELDS[n % 3]] = n or None
            case "timer":
                timers.add((key, FAR + n))
            case "cancel":
                timers.discard((key, FAR + n))
    return {
        *((key, "value", "v", None, n) for key, n in values.items() if n is not None),
        *((key, "list", "l", place, n) for key, items in lists.items() for place, n in enumerate(items)),
        *((key, "map", "m", field, n) for (key, field), n in fields.items() if n is not None),
        *((key, "timer", "", None, time) for key, time in timers),
    }


class LookedAt(TimedRun):
    """A query of which every key is looked at before, between and behind the steps of its workers."""

    history = coming = ()  # records of the epochs before, and of the one under way
    lost = False
    far = None  # the host from which some of its workers are read

    def step(self, task, tables):
        self.look()
        answer = super().step(task, tables)
        self.lost = self.lost and task.worker < task.order.written.workers - 1
        self.look(-1 if task.order.written.plan.on_demand else task.worker)
        return answer

    def look(self, done=-1):
        """Checks what is read of every key; the workers up to one have done their steps."""
        try:
            states = self.get_many(KEYS)
        except StateError:
            assert self.lost or not self.number, "only a worker that is to be rebuilt cannot be read"
            return
        before, now = by_key(model(self.history)), by_key(model([*self.history, *self.coming]))
        for key, state in zip(KEYS, states, strict=True):
            assert state.key == key
            found = {tuple(row)[2:] for row in state.rows}
            assert found in ([now[key]] if state.epoch == self.number else [before[key], now[key]])
            assert state.epoch in {self.number - 1, self.number}
            place = self.driver.place(int(bin_of_hash(np.array([hash_bytes(key)], np.uint64), BINS)[0]))
            has_run = (place.location if place.target is None else place.target) <= done
            assert state.epoch == self.number or not has_run

    def get_many(self, keys):
        return self.far.reader().get_many(keys)


def by_key(rows):
    found = {key: set() for key in KEYS}
    for key, *rest in rows:
        found[key].add(tuple(rest))
    return found


RECORD = st.tuples(
    st.sampled_from(KEYS), st.sampled_from(["value", "append", "clear", "field", "timer", "cancel"]), st.integers(0, 6)
)
EPOCH = st.tuples(
    st.lists(RECORD, max_size=12), st.sampled_from(["", "", "", "move", "restart", "lose"]), st.integers(0, 2)
)
LAST = 13
HELD = st.lists(st.tuples(st.integers(0, LAST), st.integers(0, LAST)), max_size=20)  # made and read behind epochs


def rows_of(frame):
    found = [tuple(row)[1:] for row in frame.itertuples(index=False)]
    assert len(found) == len(set(found)), "a row comes once"
    return set(found)


@pytest.fixture(autouse=True)
def _hurried(monkeypatch):
    monkeypatch.setattr("impls.reading.points._PATIENCE_S", 0.0)
    monkeypatch.setattr("impls.reading.points._PAUSE_S", 0.0)


class Cuts:
    """Cuts that are made behind some epochs and read behind others, whatever was deleted in between."""

    def __init__(self, run, held):
        self._run, self._held, self._open = run, held, []

    def behind(self, number, at_end):
        """Reads the cuts of earlier epochs that are due, and makes those of this one."""
        for cut, due, generation in list(self._open):
            if due <= number:
                self._read(cut, at_end[cut.epoch], restarted=generation != self._run.checkpoint.generation)
                self._open.remove((cut, due, generation))
        for made, due in self._held:
            if made == number and due >= number and len(self._open) < 16:
                cut = Cut.of(self._run.driver.keeper, self._run.checkpoint.folder)
                assert cut.epoch == number
                self._open.append((cut, due, self._run.checkpoint.generation))

    @staticmethod
    def _read(cut, expected, *, restarted):
        with cut:
            try:
                frame = cut.to_pandas()
            except StateError:
                assert restarted, "only a driver that starts does not know of a cut"
                return
        assert frame.attrs["epoch"] == cut.epoch
        assert rows_of(frame) == expected


@given(
    st.lists(EPOCH, min_size=1, max_size=LAST + 1),
    st.sampled_from([2, 4, 300]),
    st.sampled_from(list(MECHANISMS)),
    HELD,
    st.sampled_from([(), (), (1,), (0, 1, 2)]),
)
@example([([], "", 0), ([], "", 0), ([], "move", 0), ([], "", 0)], 2, "rhino", [], ())  # an empty bin from a replica
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # which sets what stays the same
def test_every_epoch_that_is_kept_is_read_as_it_was(epochs, replay_epochs, mechanism, held, far):
    with tempfile.TemporaryDirectory() as folder, ExitStack() as opened:
        run = LookedAt(
            Path(folder), Everything(), mechanism, options=MECHANISMS[mechanism], replay_epochs=replay_epochs
        )
        history, at_end, cuts = [], [], Cuts(run, held)
        run.far = opened.enter_context(Far(run, far))
        for number, (records, event, worker) in enumerate(epochs):
            if event == "move":
                run.move([(bin_ + number) % 3 for bin_ in range(BINS)])
            elif event == "restart":
                run.restart()
            elif event == "lose":
                run.lose(worker)
                run.lost = True
            run.history, run.coming = tuple(history), records
            run.epoch([(0, key, {"at": number, "what": what, "n": n}) for key, what, n in records])
            history += records
            run.history, run.coming, run.lost = tuple(history), (), False
            run.look()
            assert {state.epoch for state in run.get_many(KEYS)} == {number}, "between epochs all is of the last one"
            at_end.append(model(history))
            cuts.behind(number, at_end)
        cuts.behind(LAST + 1, at_end)
        kept = list(readable(run.folder / "checkpoint", len(epochs)))
        assert kept[-1] == len(epochs) - 1, "the last one is always there"
        for epoch in kept:
            frame = read_state(run.folder / "checkpoint", epoch)
            assert frame.attrs["epoch"] == epoch
            assert rows_of(frame) == at_end[epoch]
        told_apart(run.folder / "checkpoint", kept[0], kept[-1], at_end)
        run.checkpoint.close()


def readable(checkpoint, epochs):
    """The epochs whose state is kept, as the sentence says that refuses others."""
    with (
        pytest.raises(UsageError, match="has the state at the ends of epochs") as refused,
        state_at(checkpoint, epochs),
    ):
        pass
    first, last = map(int, re.findall(r"epochs (\d+) to (\d+)", str(refused.value))[0])
    return range(first, last + 1)


def told_apart(checkpoint, first, last, at_end):
    """What differs between two epochs leads from the rows of the one to those of the other."""
    with state_at(checkpoint, first) as before, state_at(checkpoint, last) as after:
        pairs = list(differences(before, after))
    old, new = (
        ({tuple(row)[1:] for row in side if row is not None} for side in zip(*pairs, strict=True))
        if pairs
        else (set(), set())
    )
    assert old == at_end[first] - at_end[last]
    assert new == at_end[last] - at_end[first]
