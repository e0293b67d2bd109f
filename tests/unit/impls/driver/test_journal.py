"""Journals: what was appended is read back, a torn tail is cut, damage is refused, and rewriting is atomic."""

import errno

import pytest

from impls.driver import journal as journals
from impls.driver.journal import Journal, read_journal
from impls.errors import StateError, UsageError


@pytest.fixture
def path(tmp_path):
    """A journal with the entries 1, 2 and 3."""
    with Journal(tmp_path / "j.log") as journal:
        for i in (1, 2, 3):
            journal.append({"i": i})
    return tmp_path / "j.log"


def numbers(path):
    return [entry["i"] for entry in read_journal(path)]


def flip(path, at):
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(bytes(raw))


@pytest.mark.parametrize("fsync", [False, True])
def test_entries_come_back_in_order(tmp_path, fsync):
    with Journal(tmp_path / "j.log", fsync=fsync) as journal:
        for i in range(5):
            journal.append({"i": i, "text": "ä\n"})
        assert journal.size == journal.path.stat().st_size
    assert numbers(tmp_path / "j.log") == [0, 1, 2, 3, 4]


def test_an_absent_journal_is_empty(tmp_path):
    assert read_journal(tmp_path / "none.log") == []


@pytest.mark.parametrize("cut", [1, 5, 12])
def test_a_torn_tail_is_cut_and_appending_goes_on(path, cut):
    path.write_bytes(path.read_bytes()[:-cut])
    assert numbers(path) == [1, 2]
    with Journal(path) as journal:
        journal.append({"i": 4})
    assert numbers(path) == [1, 2, 4]


def test_zeros_behind_the_last_line_are_a_torn_tail(path):
    path.write_bytes(path.read_bytes() + bytes(4096))
    with Journal(path) as journal:
        journal.append({"i": 4})
    assert numbers(path) == [1, 2, 3, 4]


@pytest.mark.parametrize(("at", "line"), [(3, 1), (-40, 2), (-22, 3), (-4, 4)])
def test_a_flipped_bit_is_refused_with_file_and_line(path, at, line):
    flip(path, at)
    before = path.read_bytes()
    for read in (read_journal, Journal):
        with pytest.raises(UsageError, match=rf"j\.log is damaged in line {line}: restore it .* or start with a new"):
            read(path)
    assert path.read_bytes() == before


def test_every_flipped_bit_but_the_last_line_end_is_seen(path):
    whole = path.read_bytes()
    for at in range(len(whole) - 1):
        flip(path, at)
        with pytest.raises(UsageError, match=r"j\.log"):
            read_journal(path)
        path.write_bytes(whole)


def test_an_emptied_journal_and_another_format_are_refused(path, monkeypatch):
    monkeypatch.setattr(journals, "FORMAT", 7)
    with pytest.raises(UsageError, match="has format 1; this version reads format 7"):
        Journal(path)
    path.write_bytes(b"")
    with pytest.raises(UsageError, match="has lost its first line"):
        Journal(path)


@pytest.mark.parametrize("fsync", [False, True])
def test_a_rewritten_journal_names_its_base_and_goes_on(path, fsync):
    with Journal(path, fsync=fsync) as journal:
        journal.rewrite([{"i": 3}], base=8)
        journal.append({"i": 4})
        assert journal.size == path.stat().st_size
    assert numbers(path) == [3, 4]
    with Journal(path) as journal:
        assert journal.base == 8
    assert [file.name for file in path.parent.iterdir()] == ["j.log"]


def test_a_rewrite_that_fails_leaves_the_old_journal(path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with Journal(path) as journal:
        with monkeypatch.context() as patch:
            patch.setattr("pathlib.Path.replace", full)
            with pytest.raises(StateError, match="No space left"):
                journal.rewrite([], base=8)
        journal.append({"i": 4})
    assert numbers(path) == [1, 2, 3, 4]
    assert [file.name for file in path.parent.iterdir()] == ["j.log"]


class HalfFull:
    """A file on a disk that takes half of what is written."""

    def __init__(self, file):
        self._file = file

    def write(self, data):
        return self._file.write(data[: len(data) // 2])

    def truncate(self, size):
        return self._file.truncate(size)


def test_an_append_to_a_full_disk_leaves_no_half_line(path, monkeypatch):
    with Journal(path) as journal:
        with monkeypatch.context() as patch:
            patch.setattr(journal, "_file", HalfFull(journal._file))
            with pytest.raises(StateError, match=r"j\.log cannot be written: .*[Nn]o space"):
                journal.append({"i": 4})
        journal.append({"i": 5})
    assert numbers(path) == [1, 2, 3, 5]
