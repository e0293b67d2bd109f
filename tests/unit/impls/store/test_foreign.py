"""Whose a state folder is: another query's is refused, also while that query writes, and nothing is changed."""

import subprocess
import sys

import pytest

from impls.errors import UsageError
from impls.store.environment import Meta, Store, store_path, write_meta
from impls.store.foreign import check_own

WRITING = """
import sys
from pathlib import Path
from impls.store.environment import Store
with Store.open(Path(sys.argv[1])) as store:
    txn = store.begin()
    print("writes", flush=True)
    sys.stdin.read()
    txn.abort()
"""


def made(folder, worker, query):
    path = store_path(folder, worker)
    with Store.open(path, map_bytes=1 << 20) as store, store.begin() as txn:
        write_meta(txn, Meta.new(query, worker, 3, 1))
    return path


def test_a_folder_of_the_query_itself_is_taken_and_so_is_a_new_or_missing_one(tmp_path):
    made(tmp_path, 0, "mine")
    check_own(tmp_path, "mine")
    check_own(tmp_path / "missing", "mine")
    assert not (tmp_path / "missing").exists()


def test_one_worker_of_another_query_is_enough_to_refuse_a_folder(tmp_path):
    made(tmp_path, 0, "mine")
    path = made(tmp_path, 12_345, "another")
    before = (path / "data.mdb").read_bytes()
    with pytest.raises(UsageError, match="worker-12345 belongs to another query: give this one its own state folder"):
        check_own(tmp_path, "mine")
    assert (path / "data.mdb").read_bytes() == before


def test_another_query_is_known_while_it_writes(tmp_path):
    path = made(tmp_path, 0, "another")
    with subprocess.Popen(
        [sys.executable, "-c", WRITING, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout.readline() == "writes\n"
        with pytest.raises(UsageError, match="belongs to another query"):
            check_own(tmp_path, "mine")
        writer.communicate("")
    assert writer.returncode == 0


def test_a_file_that_is_cut_short_anywhere_is_left_to_its_worker(tmp_path):
    """LMDB ends the process where it reads beyond the end of a file, so this is looked at in one of its own."""
    path = made(tmp_path, 0, "mine")
    with Store.open(path, map_bytes=1 << 24) as store, store.begin() as txn:
        for number in range(2_000):
            txn.put(b"%06d" % number, b"x" * 500)
    whole = (path / "data.mdb").read_bytes()
    for size in (0, 1, 4_095, 4_096, 8_191, 8_192, 12_288, 100_000, len(whole) - 1):
        (path / "data.mdb").write_bytes(whole[:size])
        look = "import sys; from impls.store.foreign import check_own; check_own(sys.argv[1], 'another')"
        done = subprocess.run([sys.executable, "-c", look, tmp_path], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), size


def test_what_cannot_be_read_is_left_to_its_worker_and_a_copy_is_no_owner(tmp_path):
    path = made(tmp_path, 0, "another")
    (path / "data.mdb").write_bytes(bytes((path / "data.mdb").stat().st_size))
    made(tmp_path, 1, "another").rename(tmp_path / "worker-0001.replicas")
    (tmp_path / "worker-0002").mkdir()
    check_own(tmp_path, "mine")
