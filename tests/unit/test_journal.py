"""Journals: what was appended is read back, and a torn tail is cut."""

import pytest

from impls.runtime.journal import Journal, read_journal


def test_entries_come_back_in_order(tmp_path):
    with Journal(tmp_path / "j.log") as journal:
        for i in range(5):
            journal.append({"i": i, "text": "ä\n"})
    assert [e["i"] for e in read_journal(tmp_path / "j.log")] == [0, 1, 2, 3, 4]


def test_an_absent_journal_is_empty(tmp_path):
    assert read_journal(tmp_path / "none.log") == []


@pytest.mark.parametrize("cut", [1, 5, 12])
def test_a_torn_tail_is_cut_and_appending_goes_on(tmp_path, cut):
    path = tmp_path / "j.log"
    with Journal(path) as journal:
        journal.append({"i": 1})
        journal.append({"i": 2})
    path.write_bytes(path.read_bytes()[:-cut])
    with Journal(path) as journal:
        journal.append({"i": 3})
    assert [e["i"] for e in read_journal(path)] == [1, 3]


def test_a_flipped_bit_ends_the_journal(tmp_path):
    path = tmp_path / "j.log"
    with Journal(path) as journal:
        journal.append({"i": 1})
        journal.append({"i": 2})
    raw = bytearray(path.read_bytes())
    raw[-4] ^= 1
    path.write_bytes(bytes(raw))
    assert [e["i"] for e in read_journal(path)] == [1]
