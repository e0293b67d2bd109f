"""A worker that stalls while another one takes its state over writes into no changelog, and sends no results."""

from dataclasses import replace

import numpy as np
import pytest
from real_worlds import BIN, World, blob, order

from impls.durability import frame as frames
from impls.durability.files import Files
from impls.durability.restore import RestoreRequest, restore
from impls.errors import StateError
from impls.protocol.session import Marks, NewEpoch
from impls.realtime.worker import RealTimeWorker
from impls.store import lock
from impls.store.environment import Store
from impls.store.state import BinState
from impls.worker.environment import Environment

ALONE = np.zeros(4, np.int32)


@pytest.fixture
def taken_over(tmp_path, monkeypatch):
    """taken_over() has another worker take the state over, and apply offsets 8 to 11 of one key; `.world`, `.other`."""
    monkeypatch.setattr(lock, "_LOCK_DEADLINE_S", 0.05)
    world = World(tmp_path)
    world.fail()
    files = Files(str(tmp_path / "checkpoint"), fsync=True)
    spec = replace(world.spec, files=files)

    def worker(generation):
        one = RealTimeWorker(spec, 0, batch=0, say=lambda _: None)
        first = order(0, ALONE)
        one.hear(NewEpoch(replace(first, generation=generation, elsewhere=())))
        return one

    def take_over():
        if take_over.other is None:
            take_over.other = worker(2)
            for number, offsets in enumerate(([8], [9, 10, 11]), 1):
                take_over.other.take([blob(number, 0, offsets)])
                steps(take_over.other)

    take_over.other, take_over.spec, take_over.counts = None, spec, world.counts
    take_over.stalled = worker(1)
    yield take_over
    for one in filter(None, (take_over.stalled, take_over.other)):
        one.close()


def steps(worker):
    worker.hear(Marks(0, ((0, 9),)))  # which are not reached, so that the epoch does not end
    for _ in range(5):
        if not worker.step():
            break


def stalls_in_the_folders_fsync(patch, take_over):
    plain = frames.sync_path
    patch.setattr(
        frames, "sync_path", lambda path: (patch.setattr(frames, "sync_path", plain), take_over(), plain(path))
    )


def stalls_before_its_write(patch, take_over):
    plain = frames.Segment.append

    def append(segment, raw):
        patch.setattr(frames.Segment, "append", plain)
        take_over()
        plain(segment, raw)

    patch.setattr(frames.Segment, "append", append)


def stalls_before_it_sends(patch, take_over):
    plain = Environment.send

    def send(env, frame, results):
        patch.setattr(Environment, "send", plain)
        take_over()
        plain(env, frame, results)

    patch.setattr(Environment, "send", send)


@pytest.mark.parametrize("stall", [stalls_in_the_folders_fsync, stalls_before_its_write, stalls_before_it_sends])
def test_it_writes_nothing_behind_the_one_that_has_taken_over(taken_over, monkeypatch, tmp_path, stall):
    stall(monkeypatch, taken_over)
    taken_over.stalled.take([blob(1, 0, [8, 9])])
    with pytest.raises(StateError, match="Another task has taken over the state"):
        steps(taken_over.stalled)
    taken_over.other.close()
    with Store.open(tmp_path / "restored") as store, store.begin() as txn:
        restore(taken_over.spec.source(), txn, 0, RestoreRequest({BIN: 0}, (), 0, {}, 0))
        found = [int.from_bytes(value, "little") for _, value in BinState(txn, 4).scan(BIN, b"", b"\xff" * 9)]
    assert found == [4], "offsets 8 to 11 are four records"
    assert max(taken_over.counts.sent.values()) == 4
