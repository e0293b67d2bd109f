"""Frames, snapshots and manifest as files: read back as written, every damage found and named."""

import numpy as np
import pytest
from clocks import set_clock
from hypothesis import given
from hypothesis import strategies as st

from impls.durability import frame as frames
from impls.durability.files import Files, check_level
from impls.durability.schedule import Manifest, read_manifest, write_manifest
from impls.errors import CorruptStateError, StateError, UsageError
from impls.store.state import BinState
from impls.store.tables import STATE, bin_key

names = st.builds(lambda b, key: bin_key(STATE, b) + key, st.integers(0, 15), st.binary(min_size=1, max_size=20))
queue = st.lists(st.tuples(st.integers(0, 15), st.none() | st.binary(min_size=6, max_size=30)), max_size=5)


@given(
    entries=st.lists(st.tuples(names, st.none() | st.binary(max_size=30)), max_size=8),
    slots=st.lists(st.tuples(st.integers(0, (16 << 40) - 1), st.integers(0, 2**62)), max_size=8),
    queue=queue,
    pulls=st.lists(st.tuples(st.integers(0, 15), st.integers(0, 9)), max_size=3),
    fresh=st.booleans(),
)
def test_a_frame_is_read_back_as_it_was_written(entries, slots, queue, pulls, fresh):
    written = frames.Frame("q", 3, 17, 2, fresh, pulls, [n for n, _ in entries], [v for _, v in entries])
    written.codes = np.array([c for c, _ in slots], np.int64)
    written.counts = np.array([c for _, c in slots], np.int64)
    written.queue = queue
    read = frames.Frame.decode(written.encode(), "x")
    for name in ("query", "worker", "epoch", "generation", "fresh", "pulls", "names", "values", "queue"):
        assert getattr(read, name) == getattr(written, name)
    assert np.array_equal(read.codes, written.codes)
    assert np.array_equal(read.counts, written.counts)
    touched = {b for b, _ in pulls} | {b for b, _ in queue} | {c >> 40 for c, _ in slots} | {n[2] for n, _ in entries}
    assert read.bins() == sorted(touched)


@given(bit=st.integers(0, 10_000), cut=st.integers(0, 10_000))
def test_every_flipped_bit_and_every_cut_of_a_frame_is_found(bit, cut):
    raw = frames.Frame("q", 3, 17, 2, names=[bin_key(STATE, 1) + b"k"], values=[b"v"]).encode()
    flipped = bytearray(raw)
    flipped[bit // 8 % len(raw)] ^= 1 << bit % 8
    with pytest.raises(CorruptStateError, match="/some/where"):
        frames.Frame.decode(bytes(flipped), "/some/where")
    with pytest.raises(CorruptStateError, match="torn"):
        frames.Frame.decode(raw[: cut % len(raw)], "/some/where")


def test_files_are_whole_or_absent_and_listed_without_half_written_ones(tmp_path):
    files = Files(str(tmp_path / "deep" / "folder"), fsync=True)
    files.make_folders(["log"])
    assert files.read("log/1") is None
    files.write("log/1", b"one")
    files.write("log/1", b"two")
    (tmp_path / "deep" / "folder" / "log" / ".2.99-0").write_bytes(b"half")
    assert files.read("log/1") == b"two"
    assert files.names("log") == [("log/1", 3)]
    files.delete(["log/1", "log/never"])
    assert files.names("log") == []
    assert files.names("elsewhere") == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UsageError, match=r"file.* cannot be written"):
        Files(str(tmp_path / "file")).make_folders(["log"])
    with pytest.raises(StateError, match=r"file/log/1 cannot be written"):
        Files(str(tmp_path / "file")).write("log/1", b"")
    with pytest.raises(UsageError, match="nonsense://here cannot be used"):
        Files("nonsense://here").read("log/1")


def _comes_back(monkeypatch, folder, after):
    """Takes a folder away, lets it come back in the pause of that number, and returns the pauses."""
    away, pauses = folder.with_name("away"), []
    folder.rename(away)

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == after:
            away.rename(folder)

    set_clock(monkeypatch, "impls.durability.files", sleep=pause)
    return pauses


def test_a_folder_that_is_away_for_a_while_is_waited_for(tmp_path, monkeypatch):
    folder = tmp_path / "mounted"
    files = Files(str(folder), patience_s=60.0)
    files.make_folders(["log"])
    files.write("log/1", b"one")
    pauses = _comes_back(monkeypatch, folder, after=3)
    assert files.read("log/1") == b"one"
    assert pauses == [0.1, 0.2, 0.4]
    pauses = _comes_back(monkeypatch, folder, after=7)
    files.write("log/2", b"two")
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    assert (files.read("log/2"), files.read("log/3"), len(pauses)) == (b"two", None, 7), "a file that is absent is not"


def test_a_folder_that_stays_away_is_named_when_patience_ends(tmp_path, monkeypatch):
    files = Files(str(tmp_path / "mounted"), patience_s=5.0)
    clock = set_clock(monkeypatch, "impls.durability.files", now=0.0)
    with pytest.raises(StateError, match=r"mounted/log/1 cannot be written.*No such file"):
        files.write("log/1", b"one")
    assert 3.0 <= clock.now <= 5.0
    clock.now = 0.0
    assert files.read("log/1") is None, "who reads says what to do"
    assert clock.now >= 3.0


def test_an_unknown_durability_is_refused():
    assert check_level("host") == "host"
    with pytest.raises(UsageError, match="'disk' is unknown: use one of none, process, host"):
        check_level("disk")
    with pytest.raises(UsageError, match="fed from the changelog"):
        check_level("none", replicates=True)


def test_the_manifest_is_read_back_and_one_of_another_query_or_format_refused(tmp_path):
    files = Files(str(tmp_path))
    assert (read_manifest(files, "q", 4).base == -1).all()
    columns = [
        np.array(values) for values in ([3, -1, 9, 7], [3, -1, 8, 7], [0, -1, 1, 2], [0, -1, 1, 3], [1, -1, 2, 2])
    ]
    write_manifest(files, Manifest("q", *columns))
    read = read_manifest(files, "q", 4)
    assert read.base.tolist() == [3, -1, 9, 7]
    assert read.files() == {(3, 0, 1), (8, 1, 2), (7, 2, 2), (7, 3, 2)}
    for query, bins in (("p", 4), ("q", 8)):
        with pytest.raises(UsageError, match=r"manifest\.json belongs to another query"):
            read_manifest(files, query, bins)
    (tmp_path / "manifest.json").write_text(
        (tmp_path / "manifest.json").read_text().replace('"format": 1', '"format": 2')
    )
    with pytest.raises(UsageError, match=r"manifest\.json has format 2; this version reads format 1"):
        read_manifest(files, "q", 4)


def test_changes_hold_what_was_written_in_order(tmp_path):
    from impls.store.environment import Store

    with Store.open(tmp_path / "w") as store, store.begin() as txn:
        state = BinState(txn, 16)
        state.put_many([1], [b"a"], [b"1"], [None])
        state.put_many([1], [b"a"], [b"22"], state.get_many([1], [b"a"]))
        state.delete(1, b"a")
        assert state.changes.names == [bin_key(STATE, 1) + b"a"] * 3
        assert [value and value[:-4] for value in state.changes.values] == [b"1", b"22", None]
