"""Who reads an environment beside its writer, in another process, reads on whatever the writer does."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from impls.errors import CorruptStateError, StateError
from impls.store.environment import Store

ROOT = Path(__file__).parents[4]
MIB = 1 << 20


def in_another_process(code, *arguments):
    words = [sys.executable, "-c", f"import sys\nfrom pathlib import Path\n{code}", *map(str, arguments)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


WRITES = """
from impls.store.environment import Store
with Store.open(Path(sys.argv[1]), map_bytes=int(sys.argv[2])) as store, store.begin() as txn:
    for number in range(int(sys.argv[3])):
        txn.put(number.to_bytes(4, "big"), bytes(2_000))
"""


def test_a_map_that_its_writer_makes_larger_is_not_taken_from_under_a_reader(tmp_path):
    in_another_process(WRITES, tmp_path, MIB, 100)
    with Store.open(tmp_path, readonly=True, map_bytes=MIB) as store, store.reading() as first:
        value = first.get(bytes(4))
        before = store.map_bytes
        in_another_process(WRITES, tmp_path, 4096 * MIB, 5_000)
        with store.reading() as second:
            assert second.stat()["entries"] == 5_000
            assert store.map_bytes == before, "to make it larger moves it, and what the first one reads is gone"
            assert bytes(value) == bytes(2_000)
            assert first.stat()["entries"] == 100


READS = """
import resource
from impls.store.environment import Store
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]), int(sys.argv[2])))
with Store.open(Path(sys.argv[1]), readonly=True, map_bytes=1 << 20) as store, store.reading() as txn:
    print(txn.stat()["entries"], store.map_bytes >> 30)
"""


@pytest.mark.skipif(resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY, reason="addresses are limited")
@pytest.mark.parametrize(("limit", "gibibytes"), [(1 << 42, 1024), (1 << 34, 0)])
def test_where_addresses_are_limited_the_map_is_as_large_as_the_file_needs(tmp_path, limit, gibibytes):
    in_another_process(WRITES, tmp_path, MIB, 100)
    assert in_another_process(READS, tmp_path, limit).split() == ["100", str(gibibytes)]


def test_what_is_not_there_and_what_is_none_is_said(tmp_path):
    with pytest.raises(CorruptStateError, match="There is no state in"):
        Store.open(tmp_path, readonly=True)
    (tmp_path / "data.mdb").write_bytes(b"nothing" * 3_000)
    with pytest.raises(StateError, match="cannot be read"):
        Store.open(tmp_path, readonly=True)
