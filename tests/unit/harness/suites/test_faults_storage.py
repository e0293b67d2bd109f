"""What faults do to files: the space of a deleted file is free when nobody has it open any more."""

import os
from pathlib import Path

import pytest

from harness.suites.faults.storage import holds_deleted, lose


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="no /proc tells who has a file open")
def test_a_deleted_file_is_held_until_it_is_closed(tmp_path):
    store = tmp_path / "worker-0002"
    store.mkdir()
    with (store / "data.mdb").open("wb"):
        assert not holds_deleted([os.getpid()], tmp_path)
        lose(store)
        assert holds_deleted([os.getpid()], tmp_path)
        assert not holds_deleted([os.getpid()], tmp_path / "another")
        assert not holds_deleted([], tmp_path)
    assert not holds_deleted([os.getpid()], tmp_path)
