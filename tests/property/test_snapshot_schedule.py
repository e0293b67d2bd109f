"""The snapshot schedule on random histories: replay and disk stay bounded, nothing needed is deleted."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from impls.durability.kept import KeptLog
from impls.durability.schedule import FinishedEpoch, Manifest, SnapshotSchedule, needless_snapshots


class History:
    """Bins of given sizes at moving workers; each epoch changes some of them and snapshots what is due."""

    def __init__(self, seed, bins, workers, replay, share, size=1000, image=1):
        self.image = image  # bytes of an image for each byte of state
        self.random = np.random.default_rng(seed)
        self.bins, self.workers, self.share = bins, workers, share
        self.location = self.random.integers(0, workers, bins).astype(np.int32)
        self.routing = self.location.copy()
        self.sizes, self.replay = self.random.integers(0, size, bins), replay
        self.schedule = SnapshotSchedule(
            Manifest.new("q", bins), epoch=-1, sizes=self.sizes * 0, location=self.location, replay_epochs=replay
        )
        self.saved = self.schedule.manifest
        self.snapshotted = 0

    def restart(self, number):
        """Another driver goes on behind an epoch; what the checkpoint has is the manifest, and what was observed."""
        self.schedule = SnapshotSchedule(
            self.saved, epoch=number, sizes=self.sizes, location=self.location, replay_epochs=self.replay
        )

    def epoch(self, number, log_bytes=100):
        due = self.schedule.to_snapshot(number)
        self.bytes = [int(self.sizes[[b for b in due if self.location[b] == w]].sum()) for w in range(self.workers)]
        self.snapshotted += len(due)
        arrived = self._move() if self.share else []
        changed = [*arrived, *np.flatnonzero(self.random.random(self.bins) < self.share).tolist()]
        written = {}
        for worker in range(self.workers):
            mine = [b for b in due if worker in (self.location[b], self.routing[b])]
            if mine:
                written[worker] = (mine, int(self.sizes[mine].sum()) * self.image)
        self.schedule.observe(
            FinishedEpoch(number, 1, changed, log_bytes, written, self.location.copy(), self.routing.copy(), self.sizes)
        )
        if number % self.schedule.manifest_epochs == 0:
            self.saved = self.schedule.manifest

    def _move(self):
        """Sends one bin on its way, or lets one arrive; returns the bins that arrived."""
        bin_ = int(self.random.integers(self.bins))
        if self.location[bin_] == self.routing[bin_]:
            self.routing[bin_] = self.random.integers(self.workers)
            return []
        self.location[bin_] = self.routing[bin_]
        return [bin_]


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    bins=st.sampled_from([1, 8, 50]),
    workers=st.integers(1, 6),
    replay=st.sampled_from([5, 20, 100]),
    share=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
)
def test_what_was_saved_never_asks_for_more_than_the_replay_bound_and_only_changed_bins_are_written(
    seed, bins, workers, replay, share
):
    history = History(seed, bins, workers, replay, share)
    for number in range(3 * replay):
        history.epoch(number)
        assert number - history.saved.base.min() <= replay
        assert (history.saved.base <= number).all()
        written = history.saved.file_epoch >= 0
        assert (history.saved.base[written] >= history.saved.file_epoch[written]).all()
    if share == 0.0:
        assert history.snapshotted == 0


@pytest.mark.lengthy
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), image=st.sampled_from([1, 3, 6]))
def test_images_larger_than_their_values_do_not_make_every_file_wasteful(seed, image):
    history = History(seed, 40, 4, 100, 1.0, size=1_000_000, image=image)
    for number in range(400):
        before = history.snapshotted
        history.epoch(number)
        assert history.snapshotted - before <= 20, f"half of all bins are snapshotted in epoch {number}"
    assert history.snapshotted < 400 * 4


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), share=st.sampled_from([0.1, 1.0]))
def test_needless_files_are_those_that_the_manifest_does_not_need(seed, share):
    history = History(seed, 12, 3, 20, share)
    for number in range(70):
        history.epoch(number)
    schedule, base = history.schedule, history.schedule.manifest.base
    frames = [(epoch, worker) for epoch in range(70) for worker in range(3)]
    log = KeptLog((frame, 10) for frame in frames[: 20 * 3])
    for frame in frames[15 * 3 :]:  # some epochs are run again
        log.add(*frame, 20)
    kept = set(frames) - set(log.take_needless(schedule.manifest))
    assert {epoch for epoch, _ in kept} == set(range(int(base.min()) + 1, 70))
    assert log.bytes == sum(20 if epoch >= 15 else 10 for epoch, _ in kept)
    assert not log.take_needless(schedule.manifest)
    names = [(epoch, worker, 1) for epoch, worker in frames]
    images = set(needless_snapshots([schedule.manifest], names))
    assert not images & schedule.manifest.files()
    assert images | schedule.manifest.files() >= set(names)


def test_a_log_that_grows_faster_than_the_state_is_cut_by_faster_snapshots():
    history = History(1, 16, 2, 100, 1.0, size=1 << 20)
    calm = history.schedule.cycle()
    for number in range(60):
        history.epoch(number, log_bytes=4 << 20)
    assert history.schedule.cycle() < calm / 4


def test_snapshots_of_one_epoch_are_a_small_part_of_the_state():
    history = History(1, 256, 4, 100, 1.0)
    largest = 0
    for number in range(300):
        due = history.schedule.to_snapshot(number)
        largest = max(largest, int(history.sizes[list(due)].sum()) if number > 100 else 0)
        history.epoch(number)
    assert largest < history.sizes.sum() / 25


@pytest.mark.parametrize(("log_bytes", "least", "most"), [(100, 60, 130), (4 << 20, 150, 800)])
def test_images_of_a_large_state_are_a_mebibyte_an_epoch_unless_the_log_grows(log_bytes, least, most):
    history = History(1, 64, 4, 300, 1.0)
    history.sizes = np.full(64, 16 << 20)
    for number in range(1_600):
        history.epoch(number, log_bytes=log_bytes)
    assert least <= history.snapshotted <= most


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    size=st.sampled_from([1000, 1 << 24]),
    share=st.sampled_from([0.05, 1.0]),
    starts=st.lists(st.integers(100, 399), max_size=6),
)
def test_a_driver_that_starts_writes_no_more_snapshots_than_one_that_goes_on(seed, size, share, starts):
    history = History(seed, 64, 4, 100, share, size=size)
    usual = 0
    for number in range(400):
        if number in starts:
            history.restart(number - 1)
        history.epoch(number)
        total = sum(history.bytes)
        if not any(start <= number < start + 20 for start in starts):
            usual = max(usual, total)
        elif number >= 100:
            assert total <= max(usual, 2 * int(history.sizes.sum()) // 80 + int(history.sizes.max())), number


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.sampled_from([1 << 22, 1 << 27]), log_bytes=st.sampled_from([100, 1 << 32]))
def test_what_a_worker_writes_in_an_epoch_is_bounded_and_it_goes_on(seed, size, log_bytes):
    """Also where the changelog grows so fast that every bin is due, or a driver knows no sizes."""
    history = History(seed, 64, 4, 30, 1.0, size=size)
    for number in range(60):
        history.epoch(number, log_bytes)
        assert max(history.bytes) <= max(64 << 20, int(history.sizes.max()))
        if log_bytes > 100:
            assert number - history.schedule.manifest.base.min() <= 50  # of 64 bins at 4 workers, one in an epoch


@pytest.mark.parametrize(("gib", "workers"), [(0.1, 4), (20, 4), (100, 100), (1024, 1000)])
def test_a_cycle_is_bounded_in_changelog_files(gib, workers):
    sizes, location = np.full(4096, int(gib * 2**30) // 4096), (np.arange(4096) % workers).astype(np.int32)
    schedule = SnapshotSchedule(Manifest.new("q", 4096), epoch=-1, sizes=sizes, location=location)
    assert schedule.cycle() * workers <= 100_000


@pytest.mark.parametrize("size", [10, 48 << 20])
def test_bins_that_begin_with_state_of_their_own_have_snapshots_soon_though_nothing_changes(size):
    """A worker may write one bin in an epoch however large it is, and 64 MiB of others."""
    bins, location = 8, np.arange(8, dtype=np.int32) % 2
    sizes = np.full(bins, size, np.int64)
    schedule = SnapshotSchedule(Manifest.new("q", bins), epoch=-1, sizes=sizes, location=location, begins_own=True)
    number = 0
    while len(schedule.unknown):
        due = schedule.to_snapshot(number)
        written = {w: ([b for b in due if location[b] == w], size) for w in (0, 1)}
        assert all(mine for mine, _ in written.values())
        schedule.observe(FinishedEpoch(number, 1, [], 0, written, location, location, sizes))
        number += 1
    assert number == (1 if size == 10 else 4)
    assert schedule.to_snapshot(number) == ()
    again = SnapshotSchedule(schedule.manifest, epoch=number - 1, sizes=sizes, location=location, begins_own=True)
    assert again.to_snapshot(number) == ()
